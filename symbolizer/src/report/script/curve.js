// Curves: bytes over time, each with its name and its number at a moment.

/** What was in use at the beginning, in bytes. */
const inUseBefore = data.groups.reduce((sum, group) => sum + amountOf(group, "in_use", "bytes", 0), 0);
const allGroups = new Set(data.groups);

/** All curves: each with points of time and bytes. `amount` gives the number at a moment; null: none. */
function curvesOf() {
  const { end_s, in_use, in_use_error, highest } = data.steps;
  const times = [data.from_s, ...end_s.map((_, step) => timeOf(data, step + 1))];
  const points = (values) => values.map((value, n) => [times[n], value]);
  const error = (moment) => (moment === 0 ? 0 : in_use_error[stepOf(data, moment)] * data.standard_errors);
  const inUse = (moment) => spikeAt(data, moment)?.bytes ?? (moment === 0 ? inUseBefore : in_use[moment - 1]);
  const curves = [{
    key: "in_use", name: data.is_exact ? "in use" : `in use, with its ${data.percent} % interval`, points: points([inUseBefore, ...in_use]),
    error, amount: (moment) => inUse(moment), words: (moment) => (data.is_exact ? "" : ` ± ${bytes(error(moment))}`),
  }, {
    key: "highest", name: "highest in each step", points: highest.map((value, n) => [(times[n] + times[n + 1]) / 2, value]),
    amount: (moment) => (moment === 0 || moment > last ? null : highest[moment - 1]),
  }];
  if (data.coarse.length > 0) {
    curves.push({
      key: "coarse",
      name: data.is_joined
        ? "coarse: no more between moments, from before all logs have detail"
        : "coarse: the highest between moments, from before the oldest kept segment",
      points: data.coarse.map(({ time_s, highest }) => [time_s, highest]), amount: () => null,
    });
  }
  if (data.memory) {
    curves.push({
      key: "resident", name: "resident (RSS)",
      points: [...data.coarse.filter(({ resident }) => resident !== null), ...data.memory.readings].map(({ time_s, resident }) => [time_s, resident]),
      amount: (moment) => readingAt(data, timeOf(data, moment)).resident,
      words: (moment) => ` (read at ${seconds(readingAt(data, timeOf(data, moment)).time_s)})`,
    });
  }
  if (isOfMappings(state.unit)) {
    const mapped = curveOf(data, data.groups, state.unit);
    curves.push({ key: "mapped", name: UNITS[state.unit].label, points: points(mapped.slice(0, last + 1)), amount: (moment) => mapped[moment] });
  }
  const beside = besideTheWhole();
  if (beside) {
    const own = curveOf(data, beside.groups, state.unit);
    curves.push({ key: "picked", name: beside.name, points: points(own.slice(0, last + 1)), amount: (moment) => own[moment] });
  }
  return curves;
}

/** Of the groups that count, those whose curve is drawn beside the whole, and their name; null: there is no such curve. */
function besideTheWhole() {
  const left = new Set(data.groups.filter((_, index) => state.counts[index]));
  // What a dimension divides is not searched.
  const counts = (group) => left.has(group) || !allGroups.has(group);
  if (state.picked) return { groups: state.picked.groups.filter(counts), name: state.picked.name };
  return isFiltered() ? { groups: [...left], name: "what is left by search and exclusions" } : null;
}

/** The highest place of a curve in a part of the time. It comes in from a point before that part, and goes on to one behind it. */
function highestOf({ points, error }, from, to) {
  const isInside = (n) => (points[n + 1] ?? points[n])[0] >= from && (points[n - 1] ?? points[n])[0] <= to;
  return Math.max(0, ...points.map(([, value], n) => (isInside(n) ? value + (error?.(n) ?? 0) : 0)));
}

const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** A line whose height between two points is that of the later one: each is the highest of the time before it. */
const stairs = (points, from) => points.map(([x, y], n) => `${n ? "V" : `M${from.toFixed(1)} `}${y.toFixed(1)}H${x.toFixed(1)}`).join("");

function drawCurve(plot, { key, points, error }, x, y, floor) {
  const placed = points.map(([time, value]) => [x(time), y(value)]);
  if (key === "coarse") return plot.append(svg("path", { class: "curve coarse", d: stairs(placed, x(0)) }));
  if (key === "in_use") {
    const edge = (sign) => points.map(([time, value], n) => [x(time), y(value + sign * error(n))]);
    if (!data.is_exact) plot.append(svg("path", { class: "band", d: `${path(edge(1))}${path(edge(-1).reverse()).replace("M", "L")}Z` }));
    plot.append(svg("path", { class: "area", d: `${path(placed)}L${placed.at(-1)[0]} ${floor}L${placed[0][0]} ${floor}Z` }));
  }
  plot.append(svg("path", { class: `curve ${key}`, d: path(placed) }));
  if (points.length === 1) plot.append(svg("circle", { class: `point ${key}`, cx: placed[0][0], cy: placed[0][1], r: 3 }));
}
