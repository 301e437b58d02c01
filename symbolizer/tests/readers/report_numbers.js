// What a report's page says, as its own script adds it up:
//
//   node report_numbers.js FOLDER PAGE.html [TEXT [regex]]
//
// FOLDER has the page's script. Prints JSON: of each moment the groups' numbers, of some views what is shown of them, and what is found by
// the text.

const fs = require("fs");
const path = require("path");

const [, , folder, file, text = "", kind = ""] = process.argv;
// The parts that do not draw. A browser has them in one script, so they share their names.
const PARTS = ["quantity", "time", "series", "frame", "search", "line", "tree", "peak", "memory", "link"];
const NAMES = `at numberOf numbersOf curveOf amountOf timeOf momentAt hitsOf finderOf countsOf linesOf linesOfDimension groupsOfLine wordsOfLine
  groupingsOf treeOf layout groupsOf momentsOf peaksOf readingAt waterfallOf linkOf chosenBy bytes duration endOf`;
const source = PARTS.map((name) => fs.readFileSync(path.join(folder, `${name}.js`), "utf8")).join("\n");
const model = new Function(`"use strict"; ${source}; return { ${NAMES.split(/\s+/).join(", ")} };`)();

const page = fs.readFileSync(file, "utf8");
const scripts = [...page.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)];
const data = JSON.parse(scripts.find(([, attributes]) => attributes.includes("application/json"))[2]);
const last = data.steps.end_s.length;
const nameOf = (frame) => data.texts[data.frames[frame][0]];

const moments = [];
for (let moment = 0; moment <= last + (data.peak?.is_known ? 1 : 0) + data.spikes.length; moment++) {
  const number = (group, view, unit) => model.numberOf(group, view, unit, 0, moment).value;
  moments.push({
    time: model.timeOf(data, moment),
    groups: data.groups.map((group) => ({
      name: group.site === null ? "" : nameOf(group.site),
      in_use: [number(group, "in_use", "blocks"), number(group, "in_use", "bytes")],
      allocated: [number(group, "allocated", "blocks"), number(group, "allocated", "bytes")],
      mapped: [number(group, "in_use", "mapped"), number(group, "in_use", "resident")],
    })),
    error: Math.sqrt(model.numbersOf(data, "in_use", "bytes", 0, moment).total.variance),
  });
}

const half = last >> 1;
const views = {};
for (const view of ["in_use", "grown", "shrunk", "allocated"]) {
  const { numbers, total } = model.numbersOf(data, view, "bytes", half, last);
  const trees = [false, true].map((from_callee) => {
    const root = model.treeOf(data, numbers, from_callee);
    const first = [...root.children.values()][0];
    const boxes = model.layout(root, first ?? root, 0);
    return {
      root: root.value,
      // Of each level: what its boxes are wide together, the one that is looked into being 1.
      widths: boxes.reduce((widths, { depth, width }) => {
        widths[depth] = (widths[depth] ?? 0) + width;
        return widths;
      }, []),
      looked_into: first?.value ?? 0,
      groups: first ? model.groupsOf(data, first, from_callee).length : 0,
    };
  });
  views[view] = {
    total: total.value,
    error: Math.sqrt(total.variance),
    sites: model.linesOf(data, numbers).map(({ key, value }) => [nameOf(key), value]),
    trees,
  };
}

// By each grouping: the bytes in use at the end, and at the end of the first half, by name.
const groupings = {};
for (const [by] of model.groupingsOf(data)) {
  const dimension = data.dimensions.find(({ name }) => name === by);
  groupings[by] = [last, half].map((moment) => {
    const { numbers } = model.numbersOf(data, "in_use", "bytes", 0, moment);
    const lines = dimension ? model.linesOfDimension(dimension, "in_use", "bytes", 0, moment) : model.linesOf(data, numbers, by);
    return Object.fromEntries(lines.map(({ key, value }) => [model.wordsOfLine(data, by, key).name, value]));
  });
}
const { numbers: at_end } = model.numbersOf(data, "in_use", "bytes", 0, last);
const slack = Object.fromEntries(model.linesOf(data, at_end).map(({ key, slack }) => [nameOf(key), slack]));

const finder = model.finderOf(text, kind === "regex");
const found = {};
for (const what of ["mark", "only", "without"]) {
  const counts = model.countsOf(data, model.hitsOf(data, finder), finder === null ? "mark" : what, finder);
  const { numbers, total } = model.numbersOf(data, "allocated", "bytes", 0, last, counts);
  const root = model.treeOf(data, numbers, false);
  const sites = model.linesOf(data, numbers).map(({ key, value }) => [nameOf(key), value]);
  found[what] = { total: total.value, variance: total.variance, root: root.value, sites };
}
const without = (name) => model.numbersOf(data, "allocated", "bytes", 0, last, model.countsOf(data, [], "mark", null, [name])).total.value;
const functions = [...new Set(data.frames.map(([name]) => data.texts[name]))];
const left_out = Object.fromEntries(functions.map((name) => [name, without(name)]));

const memory = moments.map(({ time }) => {
  const reading = model.readingAt(data, time);
  return reading && { time_s: reading.time_s, resident: reading.resident, lines: model.waterfallOf(data, reading) };
});

const texts = [0, 1, 1023, 1024, 1535, 1047552, 16.5 * 2 ** 20, 5e12].map(model.bytes);
const durations = [0, 3e-6, 0.0123, 3.44, 90, 7200, 200000].map(model.duration);
const ends = [["/a/b/c.rs:1", 20], ["/home/me/project/src/main.rs:250", 20], ["/x/averylongfilename.cpp:7", 12], ["a", 1]].map(([path, room]) => model.endOf(path, room));
const nearest = [0, 0.26, 3.3, 9.9].map((time) => model.momentAt(data, time));
const state = { view: "grown", unit: "blocks", a: 1, b: last, search: "a&b=c “d”", found: "only", is_regex: true, left_out: [functions[0]], zoom: [0, 0.5] };
const links = [
  model.chosenBy(data, model.linkOf(state)),
  model.chosenBy(data, model.linkOf({ ...state, search: "", left_out: [], zoom: null })),
  model.chosenBy(data, `view=toString&unit=x&a=${model.momentsOf(data) + 1}&b=-1&found=all&other=1&by=label:x&out=nowhere&zoom=3,2`),
];
const peaks = model.peaksOf(data);
const scripts_count = scripts.length;
const curve = model.curveOf(data, data.groups);
console.log(JSON.stringify({
  data, moments, views, groupings, slack, found, left_out, memory, texts, durations, ends, nearest, curve, links, peaks, scripts_count,
}));
