// Series: the numbers of a group at every moment, and what a view makes of them.

/** Where the numbers of blocks stand among a group's series; the errors stand four further. */
const SERIES = { in_use: { bytes: 0, blocks: 1 }, allocated: { bytes: 2, blocks: 3 } };
const ERRORS = 4;
/** Where the numbers of mappings stand. */
const MAPPED = { mapped: 0, resident: 1 };

/** What can be shown of the moments A and B. */
const VIEWS = {
  in_use: { label: "in use at B", needs_a: false },
  grown: { label: "grown from A to B", needs_a: true },
  shrunk: { label: "shrunk from A to B", needs_a: true },
  allocated: { label: "allocated from A to B", needs_a: true },
};

/** What is counted. */
const UNITS = {
  bytes: { label: "bytes", of: "blocks" },
  blocks: { label: "blocks", of: "blocks" },
  mapped: { label: "mapped bytes", of: "mappings" },
  resident: { label: "mapped, resident", of: "mappings" },
};

const isOfMappings = (unit) => UNITS[unit].of === "mappings";
const hasMappings = (data) => data.groups.some((group) => group.mapped);

/** The number of a series (moment, number, moment, number, …) at a moment: the last that is not after it. */
function at(series, moment) {
  if (series === undefined) return 0; // an exact recording has no errors
  let low = 0;
  let high = series.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (series[2 * middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? 0 : series[2 * low - 1];
}

/** What a group has at a moment. Nothing tells when a mapping was made and unmapped again within a step, so none is ever "allocated". */
function amountOf(group, what, unit, moment) {
  if (isOfMappings(unit)) return what === "in_use" ? at(group.mapped?.[MAPPED[unit]], moment) : 0;
  return at(group.series[SERIES[what][unit]], moment);
}

function varianceOf(group, what, unit, moment) {
  return isOfMappings(unit) ? 0 : at(group.series[SERIES[what][unit] + ERRORS], moment) ** 2;
}

/** The number and the variance of a group in a view. Of what grew or shrank, the variance is a bound: blocks that were there at A and at B
 * cancel, and nothing here says how much of either they are. */
function numberOf(group, view, unit, a, b) {
  const of = (what, moment) => amountOf(group, what, unit, moment);
  const variance = (what, moment) => varianceOf(group, what, unit, moment);
  switch (view) {
    case "in_use":
      return { value: of("in_use", b), variance: variance("in_use", b) };
    case "allocated":
      return {
        value: of("allocated", b) - of("allocated", a),
        variance: Math.max(0, variance("allocated", b) - variance("allocated", a)),
      };
    default: {
      const grown = of("in_use", b) - of("in_use", a);
      const value = Math.max(0, view === "grown" ? grown : -grown);
      return { value, variance: value > 0 ? variance("in_use", a) + variance("in_use", b) : 0 };
    }
  }
}

/** The numbers of all groups in a view, with their sum. Those that do not count have nothing. */
function numbersOf(data, view, unit, a, b, counts) {
  const nothing = { value: 0, variance: 0 };
  const numbers = data.groups.map((group, index) => (counts?.[index] === false ? nothing : numberOf(group, view, unit, a, b)));
  const total = { value: 0, variance: 0 };
  for (const number of numbers) {
    total.value += number.value;
    total.variance += number.variance;
  }
  return { numbers, total };
}

/** What some groups had in use together, in bytes, at each moment. */
function curveOf(data, groups, unit = "bytes") {
  const curve = [];
  const of = isOfMappings(unit) ? unit : "bytes";
  for (let moment = 0; moment <= momentsOf(data); moment++) {
    curve.push(groups.reduce((sum, group) => sum + amountOf(group, "in_use", of, moment), 0));
  }
  return curve;
}
