// What a report's page says, as its own model adds it up:
//
//   node report_numbers.js MODEL.js PAGE.html [TEXT]
//
// Prints JSON: of each moment the groups' numbers, of some views what is shown of them, and what is found by the text.

const fs = require("fs");
const model = require(process.argv[2]);
const page = fs.readFileSync(process.argv[3], "utf8");

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
      name: nameOf(group.site),
      in_use: [number(group, "in_use", "blocks"), number(group, "in_use", "bytes")],
      allocated: [number(group, "allocated", "blocks"), number(group, "allocated", "bytes")],
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
    sites: model.sitesOf(data, numbers).map(({ frame, value }) => [nameOf(frame), value]),
    trees,
  };
}

const labels = {};
for (const key of data.label_keys) {
  const { numbers } = model.numbersOf(data, "in_use", "bytes", 0, last);
  labels[key] = Object.fromEntries(model.sitesOf(data, numbers, key).map(({ frame, value }) => [data.texts[frame], value]));
}

const found = {};
for (const what of ["mark", "only", "without"]) {
  const counts = model.countsOf(data, model.hitsOf(data, process.argv[4] ?? ""), what, process.argv[4] ?? "");
  const { numbers, total } = model.numbersOf(data, "allocated", "bytes", 0, last, counts);
  const root = model.treeOf(data, numbers, false);
  const sites = model.sitesOf(data, numbers).map(({ frame, value }) => [nameOf(frame), value]);
  found[what] = { total: total.value, variance: total.variance, root: root.value, sites };
}

const texts = [0, 1, 1023, 1024, 1535, 1047552, 16.5 * 2 ** 20, 5e12].map(model.bytes);
const nearest = [0, 0.26, 3.3, 9.9].map((time) => model.momentAt(data, time));
const state = { view: "grown", unit: "blocks", a: 1, b: last, search: "a&b=c “d”", found: "only" };
const links = [
  model.chosenBy(data, model.linkOf(state)),
  model.chosenBy(data, model.linkOf({ ...state, search: "" })),
  model.chosenBy(data, `view=toString&unit=x&a=${last + 2}&b=-1&found=all&other=1`),
];
const scripts_count = scripts.length;
console.log(JSON.stringify({ data, moments, views, labels, found, texts, nearest, curve: model.curveOf(data, data.groups), links, scripts_count }));
