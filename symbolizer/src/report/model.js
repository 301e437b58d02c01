// The numbers of a page: what a group has at a moment, what a view makes of it, and how the groups add up. Nothing here draws.

/**
 * Where the numbers of bytes or blocks stand among a group's series; the errors stand four
 * further.
 */
const SERIES = { in_use: { bytes: 0, blocks: 1 }, allocated: { bytes: 2, blocks: 3 } };
const ERRORS = 4;

/** What can be shown of the moments A and B. */
const VIEWS = {
  in_use: { label: "in use at B", needs_a: false },
  grown: { label: "grown from A to B", needs_a: true },
  shrunk: { label: "shrunk from A to B", needs_a: true },
  allocated: { label: "allocated from A to B", needs_a: true },
};

/**
 * The number of a series (moment, number, moment, number, …) at a moment: the last that is not
 * after it.
 */
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

/** The number and the variance of a group in a view. Of what grew or shrank, the variance is a bound: blocks that were there at A and at B
 * cancel, and nothing here says how much of either they are. */
function numberOf(group, view, unit, a, b) {
  const of = (what, moment) => at(group.series[SERIES[what][unit]], moment);
  const variance = (what, moment) => at(group.series[SERIES[what][unit] + ERRORS], moment) ** 2;
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

/**
 * Of each frame, whether a text is in its function, its file with line, or its module; capitals or
 * not.
 */
function hitsOf(data, text) {
  const searched = text.toLowerCase();
  return data.frames.map((frame) => searched !== "" && Object.values(wordsOf(data, frame)).join("\n").toLowerCase().includes(searched));
}

/** The labels of a group, as `key=value`. */
function labelsOf(data, group) {
  return data.label_keys.map((key, index) => `${key}=${data.texts[group.labels[index]]}`);
}

/**
 * Whether a group has a hit in its stack, or the text in a label. Of stacks whose callers are not
 * told apart the site alone is searched.
 */
function isFound(data, group, hits, text) {
  const searched = text.toLowerCase();
  const isIn = (label) => searched !== "" && label.toLowerCase().includes(searched);
  return group.stack.some((frame) => hits[frame]) || labelsOf(data, group).some(isIn);
}

/**
 * Of each group, whether it counts: all do where hits are only marked, and else those that are
 * found ("only") or the others ("without").
 */
function countsOf(data, hits, found, text) {
  return data.groups.map((group) => found === "mark" || isFound(data, group, hits, text) === (found === "only"));
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

/**
 * What a group is added up by: its site's frame, or the text of its value of a label's key; null:
 * it has none.
 */
function lineOf(data, group, by) {
  const key = data.label_keys.indexOf(by);
  return key < 0 ? group.site : group.labels[key];
}

/**
 * Sites, or values of a label, with their own numbers, largest first; equal ones in the order of
 * the groups.
 */
function sitesOf(data, numbers, by = "") {
  const sites = new Map();
  data.groups.forEach((group, index) => {
    const { value, variance } = numbers[index];
    const line = lineOf(data, group, by);
    if (value <= 0 || line === null) return;
    const site = sites.get(line) ?? { frame: line, value: 0, variance: 0 };
    site.value += value;
    site.variance += variance;
    sites.set(line, site);
  });
  return [...sites.values()].sort((x, y) => y.value - x.value);
}

/** The function, the file with line, and the module of a frame (an entry of `data.frames`). */
function wordsOf(data, [name, file, line, module]) {
  const text = (number) => (number < 0 ? "" : data.texts[number]);
  return { name: text(name), where: text(file) + (line > 0 ? `:${line}` : ""), module: text(module) };
}

/** What makes two frames one in the flame graph: the function and the module, and not the line. */
function nameOf(data, frame) {
  const [text, , , module] = data.frames[frame];
  return `${text} ${module}`;
}

/**
 * The tree of all stacks, from the root or, turned around, from the function that allocated. A
 * node has its children largest first.
 */
function treeOf(data, numbers, from_callee) {
  const root = { frame: null, value: 0, variance: 0, own: 0, children: new Map() };
  data.groups.forEach((group, index) => {
    const { value, variance } = numbers[index];
    if (value <= 0) return;
    let node = root;
    const add = (to) => {
      to.value += value;
      to.variance += variance;
    };
    add(node);
    const stack = from_callee ? [...group.stack].reverse() : group.stack;
    for (const frame of stack) {
      const name = nameOf(data, frame);
      let child = node.children.get(name);
      if (child === undefined) {
        child = { frame, value: 0, variance: 0, own: 0, children: new Map(), parent: node };
        node.children.set(name, child);
      }
      node = child;
      add(node);
    }
    node.own += value;
  });
  return root;
}

/** The rectangles of a tree: each with its node, its depth, and its left edge and width as parts of the whole. Those narrower than `least` are
 * left out, with all that they call. Above `focus` its callers are as wide as the picture. */
function layout(root, focus, least) {
  const boxes = [];
  const outer = [];
  for (let node = focus.parent; node; node = node.parent) outer.unshift(node);
  outer.forEach((node, depth) => boxes.push({ node, depth, left: 0, width: 1, is_outer: true }));
  const waiting = [{ node: focus, depth: outer.length, left: 0 }];
  while (waiting.length > 0) {
    const { node, depth, left } = waiting.pop();
    const width = focus.value > 0 ? node.value / focus.value : 0;
    if (width < least) continue;
    boxes.push({ node, depth, left, width, is_outer: false });
    let next = left;
    const children = [...node.children.values()].sort((x, y) => y.value - x.value);
    for (const child of children) {
      waiting.push({ node: child, depth: depth + 1, left: next });
      next += child.value / focus.value;
    }
  }
  return boxes;
}

/**
 * The groups that a node is made of: those whose stack begins, from that end, as the way to the
 * node does.
 */
function groupsOf(data, node, from_callee) {
  const way = [];
  for (let step = node; step.parent; step = step.parent) way.unshift(nameOf(data, step.frame));
  const belongs = (group) => {
    const stack = from_callee ? [...group.stack].reverse() : group.stack;
    return stack.length >= way.length && way.every((name, depth) => nameOf(data, stack[depth]) === name);
  };
  return data.groups.filter(belongs);
}

/**
 * What some groups had in use together, in bytes, at each moment up to the end of the last step.
 */
function curveOf(data, groups) {
  const curve = [];
  for (let moment = 0; moment <= data.steps.end_s.length; moment++) {
    curve.push(groups.reduce((sum, group) => sum + at(group.series[SERIES.in_use.bytes], moment), 0));
  }
  return curve;
}

/** The time of a moment, in seconds after the start. */
function timeOf(data, moment) {
  if (moment === 0) return data.from_s;
  const last = data.steps.end_s.length;
  if (moment > last) return [...(data.peak?.is_known ? [data.peak] : []), ...data.spikes][moment - last - 1].time_s;
  return Math.min(data.steps.end_s[moment - 1], data.duration_s);
}

/** The moment whose time is nearest to a time; peaks are not among them. */
function momentAt(data, time) {
  let nearest = 0;
  for (let moment = 1; moment <= data.steps.end_s.length; moment++) {
    if (Math.abs(timeOf(data, moment) - time) < Math.abs(timeOf(data, nearest) - time)) nearest = moment;
  }
  return nearest;
}

/**
 * What is chosen, as the end of the page's address, so that a link leads to it and a reload keeps
 * it.
 */
function linkOf({ view, unit, a, b, by, search, found }) {
  return new URLSearchParams({ view, unit, a, b, ...(by ? { by } : {}), ...(search === "" ? {} : { find: search, found }) }).toString();
}

/**
 * What such an end chooses. What this page does not have is not chosen: the link may be another
 * page's.
 */
function chosenBy(data, link) {
  const said = new URLSearchParams(link);
  const most = data.steps.end_s.length + (data.peak?.is_known ? 1 : 0) + data.spikes.length;
  const isMoment = (text) => /^\d{1,5}$/.test(text) && Number(text) <= most;
  const chosen = {};
  const take = (key, name, isThere, value = (text) => text) => {
    const text = said.get(name);
    if (text !== null && isThere(text)) chosen[key] = value(text);
  };
  take("view", "view", (text) => Object.hasOwn(VIEWS, text));
  take("unit", "unit", (text) => Object.hasOwn(SERIES.in_use, text));
  take("a", "a", isMoment, Number);
  take("b", "b", isMoment, Number);
  take("by", "by", (text) => data.label_keys.includes(text));
  take("search", "find", () => true);
  take("found", "found", (text) => ["mark", "only", "without"].includes(text));
  return chosen;
}

/** As the command line writes bytes: `16.5 MiB`. */
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let power = 0;
  let left = Math.abs(value);
  while (left >= 1023.95 && power < units.length - 1) {
    left /= 1024;
    power++;
  }
  const shown = power === 0 ? left.toFixed(0) : left.toFixed(1);
  return `${value < 0 && Number(shown) !== 0 ? "-" : ""}${shown} ${units[power]}`;
}

/** With commas: `165,566`. */
function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function seconds(value) {
  return `${value.toFixed(value < 10 ? 3 : 1)} s`;
}

// For tests; a browser has no modules here.
if (typeof module !== "undefined") {
  module.exports = { at, numberOf, hitsOf, isFound, countsOf, lineOf, numbersOf, sitesOf, treeOf, layout, groupsOf, curveOf, timeOf, momentAt, linkOf, chosenBy, bytes, count };
}
