// The page: what was chosen, and the pictures of it. All text goes in as text: names are of files that anybody may have written.

const data = JSON.parse(document.getElementById("data").textContent);
const last = data.steps.end_s.length;
const peak = data.peak?.is_known ? last + 1 : null;

/** What is shown. `focus` is the node of the flame graph that one looks into, `picked` the groups whose curve is drawn. `hits` are the frames
 * that have what is searched, `found` what is done with them, and `counts` which groups are left. `by` is the label that the table is by;
 * empty: it is by site. */
const state = {
  view: "in_use",
  unit: "bytes",
  a: 0,
  // Of several processes most have ended, and given back what they had, when the last one has.
  b: data.processes && peak !== null ? peak : last,
  from_callee: false,
  search: "",
  hits: [],
  found: "mark",
  counts: [],
  by: "",
  sites: 15,
  focus: null,
  picked: null,
  site: null,
  ...chosenBy(data, location.hash.slice(1)),
};
if (timeOf(data, state.a) > timeOf(data, state.b)) state.a = 0;

const find = (id) => document.getElementById(id);

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const shown = (value) => (state.unit === "bytes" ? bytes(value) : count(value));
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "");
/** Half the interval, in words; nothing where all is exact. Of what grew or shrank it is at most that. */
function plusMinus(variance, beside = "± ") {
  if (data.is_exact || variance === 0) return "";
  const bound = state.view === "grown" || state.view === "shrunk" ? "at most " : "";
  return beside + bound + shown(Math.sqrt(variance) * data.standard_errors);
}

const words = (frame) => wordsOf(data, data.frames[frame]);

/** The end of a path, which is what tells it from others. */
function endOf(where) {
  const parts = where.split("/");
  return parts.length > 4 ? `…/${parts.slice(-3).join("/")}` : where;
}

const isFiltered = () => state.search !== "" && state.found !== "mark";

/** Of the groups that count, those whose curve is drawn beside the whole, and their name; null: there is no such curve. */
function besideTheWhole() {
  const chosen = state.picked ?? (isFiltered() ? { groups: data.groups, name: `${state.found} “${state.search}”` } : null);
  if (chosen === null) return null;
  const left = new Set(data.groups.filter((_, index) => state.counts[index]));
  return { groups: chosen.groups.filter((group) => left.has(group)), name: chosen.name };
}

function nameOfMoment(moment) {
  if (moment === 0) return data.from_s > 0 ? `${seconds(data.from_s)} (what is known begins)` : "the start";
  if (moment === peak) return `${seconds(data.peak.time_s)} (the peak)`;
  if (moment > last) return `${seconds(timeOf(data, moment))} (a peak)`;
  return seconds(timeOf(data, moment)) + (moment === last ? " (the end)" : "");
}

// --- the head

function drawHead() {
  document.title = `${data.title}: heap`;
  find("title").textContent = data.title;
  const began = data.started_ms > 0 ? `, began ${new Date(data.started_ms).toISOString().replace(/\.\d+Z/, "Z")}` : "";
  const interval = data.is_exact ? "" : `; ± is the ${data.percent} % interval`;
  find("about").textContent = `${data.who}${began}, ${seconds(data.duration_s)}: ${data.precision}${interval}`;
  if (data.command !== "") find("about").title = data.command;
  if (data.is_exact) find("sites").classList.add("exact");
  for (const note of data.notes) find("notes").append(element("li", {}, note));
}

// --- the timeline

const MARGIN = { left: 78, right: 16, top: 22, bottom: 22 };
const RATE_HEIGHT = 46;

/** Sensible steps of a scale up to `most`: at most so many. */
function ticks(most, number, base) {
  if (!(most > 0)) return [];
  let step = base ** Math.floor(Math.log(most / number) / Math.log(base));
  const finer = base === 2 ? [1, 2, 4] : [1, 2, 5, 10];
  step = finer.map((n) => n * step).find((it) => most / it <= number) ?? 4 * step;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, n) => n * step);
}

/** From times to places in the picture, and back. */
function scaleOf(width) {
  const begin = data.from_s;
  const length = Math.max(data.duration_s - begin, 1e-9);
  const wide = width - MARGIN.left - MARGIN.right;
  return {
    x: (time) => MARGIN.left + (Math.min(Math.max(time - begin, 0), length) / length) * wide,
    time: (x) => begin + (Math.min(Math.max(x - MARGIN.left, 0), wide) / wide) * length,
  };
}

function drawTimeline(beside) {
  const picture = find("timeline");
  const { clientWidth: width, clientHeight: height } = picture;
  const { x } = scaleOf(width);
  const floor = height - MARGIN.bottom - RATE_HEIGHT;
  const { end_s, in_use, in_use_error, highest, allocated } = data.steps;
  const most = Math.max(1, data.peak?.bytes ?? 0, ...highest);
  const y = (value) => floor - (Math.max(0, value) / most) * (floor - MARGIN.top);
  const peakMark = ({ time_s, bytes: height }, name, moment, r) => {
    const made = svg("circle", { class: "peak", cx: x(time_s), cy: y(height), r, ...(moment === null ? {} : { "data-moment": moment }) });
    made.append(svg("title", {}, `${name}: ${bytes(height)} at ${seconds(time_s)}`));
    return made;
  };
  const parts = [];
  const line = (points) => points.map(([px, py], n) => `${n ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");

  for (const value of ticks(most, 5, 2)) {
    parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    parts.push(svg("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, bytes(value)));
  }
  for (const value of ticks(data.duration_s - data.from_s, Math.max(2, width / 110), 10)) {
    const time = data.from_s + value;
    const label = time >= 10 || time === 0 ? `${+time.toFixed(1)} s` : `${+time.toFixed(3)} s`;
    parts.push(svg("text", { x: x(time), y: height - 6, "text-anchor": "middle" }, label));
  }
  for (const { from_s, to_s } of data.stops ?? []) {
    const box = { class: "stopped", x: x(from_s), width: Math.max(1, x(to_s) - x(from_s)), y: MARGIN.top, height: floor - MARGIN.top };
    const made = svg("rect", box);
    made.append(svg("title", {}, "nothing was recorded"));
    parts.push(made);
  }

  const times = [data.from_s, ...end_s];
  const before = data.groups.reduce((sum, group) => sum + at(group.series[SERIES.in_use.bytes], 0), 0);
  const values = [before, ...in_use];
  const edge = (sign) => values.map((value, n) => {
    const error = n === 0 ? 0 : in_use_error[n - 1];
    return [x(times[n]), y(value + sign * error * data.standard_errors)];
  });
  if (!data.is_exact) parts.push(svg("path", { class: "band", d: `${line(edge(1))}${line(edge(-1).reverse()).replace("M", "L")}Z` }));
  const curve = values.map((value, n) => [x(times[n]), y(value)]);
  parts.push(svg("path", { class: "area", d: `${line(curve)}L${x(times[last])} ${floor}L${x(times[0])} ${floor}Z` }));
  parts.push(svg("path", { class: "highest", d: line(highest.map((value, n) => [(x(times[n]) + x(times[n + 1])) / 2, y(value)])) }));
  parts.push(svg("path", { class: "curve", d: line(curve) }));
  if (beside) {
    const own = curveOf(data, beside.groups).map((value, n) => [x(times[n]), y(value)]);
    parts.push(svg("path", { class: "picked", d: line(own) }));
  }

  const fastest = Math.max(1, ...allocated);
  const ground = floor + RATE_HEIGHT;
  allocated.forEach((value, n) => {
    const tall = (value / fastest) * (RATE_HEIGHT - 12);
    const [left, right] = [x(times[n]), x(times[n + 1])];
    parts.push(svg("rect", { class: "rate", x: left, width: Math.max(0.5, right - left - 0.5), y: ground - tall, height: tall }));
  });
  const per_second = fastest / Math.max((end_s[0] ?? 0) - data.from_s, 1e-9);
  parts.push(svg("text", { x: MARGIN.left - 6, y: ground - RATE_HEIGHT + 22, "text-anchor": "end" }, "allocated,"));
  parts.push(svg("text", { x: MARGIN.left - 6, y: ground - RATE_HEIGHT + 35, "text-anchor": "end" }, `${bytes(per_second)}/s`));

  for (const { time_s, name } of data.markers) {
    if (time_s < data.from_s) continue;
    const made = svg("line", { class: "marker", x1: x(time_s), x2: x(time_s), y1: MARGIN.top, y2: ground });
    made.append(svg("title", {}, `${seconds(time_s)}: ${name}`));
    parts.push(made);
  }
  if (data.peak && data.peak.time_s >= data.from_s) {
    parts.push(peakMark(data.peak, "peak", peak, 4));
  }
  data.spikes.forEach((spike, n) => parts.push(peakMark(spike, "a peak", (peak ?? last) + 1 + n, 3)));
  const needs_a = VIEWS[state.view].needs_a;
  const [at_a, at_b] = [x(timeOf(data, state.a)), x(timeOf(data, state.b))];
  if (needs_a) {
    parts.push(svg("rect", { class: "range", x: Math.min(at_a, at_b), width: Math.abs(at_b - at_a), y: MARGIN.top, height: ground - MARGIN.top }));
  }
  for (const [name, place] of needs_a ? [["A", at_a], ["B", at_b]] : [["B", at_b]]) {
    parts.push(svg("line", { class: "moment", x1: place, x2: place, y1: MARGIN.top - 4, y2: ground }));
    parts.push(svg("text", { class: "named", x: place, y: MARGIN.top - 8, "text-anchor": "middle" }, name));
  }
  picture.replaceChildren(...parts);
}

function listenToTimeline() {
  const picture = find("timeline");
  let from = null;
  const moment = (event) => {
    const box = picture.getBoundingClientRect();
    return momentAt(data, scaleOf(picture.clientWidth).time(event.clientX - box.left));
  };
  picture.addEventListener("pointerdown", (event) => {
    const mark = event.target.dataset.moment;
    from = { moment: moment(event), chosen: mark === undefined ? moment(event) : Number(mark), x: event.clientX };
    picture.setPointerCapture(event.pointerId);
  });
  const to = (event) => {
    if (from === null) return;
    const here = moment(event);
    if (Math.abs(event.clientX - from.x) < 4) {
      state.b = from.chosen;
      if (timeOf(data, state.a) > timeOf(data, state.b)) state.a = 0;
    } else {
      state.a = Math.min(from.moment, here);
      state.b = Math.max(from.moment, here);
      if (!VIEWS[state.view].needs_a) choose("views", "grown");
    }
    draw();
  };
  picture.addEventListener("pointermove", (event) => event.buttons && to(event));
  picture.addEventListener("pointerup", (event) => {
    to(event);
    from = null;
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const b = state.b > last ? momentAt(data, timeOf(data, state.b)) : state.b;
    if (event.shiftKey) state.a = Math.min(Math.max(state.a + step, 0), b);
    else state.b = Math.min(Math.max(b + step, 0), last);
    state.a = Math.min(state.a, state.b);
    draw();
  });
}

// --- the sites

function drawSites({ numbers, total }) {
  const sites = sitesOf(data, numbers, state.by);
  find("by-what").textContent = state.by || "function";
  find("where").textContent = state.by ? "" : "where";
  const rows = sites.slice(0, state.sites).map((site) => {
    const { name, where, module } = state.by ? { name: data.texts[site.frame], where: "", module: "" } : words(site.frame);
    const row = element("tr", { tabindex: "0", title: [where, module].filter(Boolean).join("\n") });
    if (state.site === site.frame) row.classList.add("chosen");
    row.append(
      element("td", { class: "number" }, shown(site.value)),
      element("td", { class: "number error" }, plusMinus(site.variance, "")),
      element("td", { class: "number" }, percent(site.value, total.value)),
      element("td", { class: "function" }, name),
      element("td", { class: "where" }, endOf(where || module)),
    );
    const pick = () => {
      const again = state.site === site.frame;
      state.site = again ? null : site.frame;
      state.picked = again ? null : { groups: data.groups.filter((group) => lineOf(data, group, state.by) === site.frame), name };
      draw();
    };
    row.addEventListener("click", pick);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      pick();
      find("sites").querySelector("tr.chosen")?.focus();
    });
    return row;
  });
  find("sites").tBodies[0].replaceChildren(...rows);
  find("more").hidden = sites.length <= state.sites;
  find("more").textContent = `more (${count(sites.length - state.sites)})`;
}

// --- the flame graph

const ROW = 18;

/** A colour for a function, the same on every page; light enough for dark text. */
function colourOf(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return `hsl(${90 + (hash % 110)} ${38 + (hash >> 8) % 22}% ${66 + (hash >> 16) % 12}%)`;
}

let root = null;

function drawFlames(all) {
  // Where one looks into is found again in the new tree by its way.
  const way = [];
  for (let node = state.focus; node?.parent; node = node.parent) way.unshift(nameOf(data, node.frame));
  root = treeOf(data, all.numbers, state.from_callee);
  let focus = root;
  for (const name of way) focus = focus.children.get(name) ?? focus;
  state.focus = focus === root ? null : focus;
  const wide = find("flames").clientWidth;
  const boxes = layout(root, focus, 1.5 / Math.max(wide, 1));
  let deepest = 0;
  const drawn = boxes.map(({ node, depth, left, width, is_outer }) => {
    deepest = Math.max(deepest, depth);
    const name = node.frame === null ? `all: ${shown(node.value)}` : words(node.frame).name;
    const box = element("div", { tabindex: "-1" }, width * wide > 24 ? name : "");
    box.style.left = `${(100 * left).toFixed(4)}%`;
    box.style.width = `${(100 * width).toFixed(4)}%`;
    box.style.top = `${depth * ROW}px`;
    if (node.frame === null) box.classList.add("all");
    else box.style.background = colourOf(name);
    box.classList.toggle("outer", is_outer);
    box.classList.toggle("hit", state.hits[node.frame] === true);
    box.addEventListener("click", () => {
      state.focus = node === root ? null : node;
      state.site = null;
      state.picked = node === root ? null : { groups: groupsOf(data, node, state.from_callee), name };
      hideTip();
      draw();
    });
    box.addEventListener("mousemove", (event) => showTip(event, node, all.total));
    box.addEventListener("mouseleave", hideTip);
    return box;
  });
  find("flames").style.height = `${(deepest + 1) * ROW}px`;
  find("flames").replaceChildren(...drawn);
  find("out").hidden = state.focus === null;
  drawFound(all);
}

/** How much passes through what was searched for; where the rest is not shown, what was not searched. */
function drawFound({ numbers, total }) {
  if (state.search === "") {
    find("found").textContent = "";
    return;
  }
  const parts = [];
  if (!isFiltered()) {
    let value = 0;
    let variance = 0;
    data.groups.forEach((group, index) => {
      if (!isFound(data, group, state.hits, state.search)) return;
      value += numbers[index].value;
      variance += numbers[index].variance;
    });
    parts.push(`“${state.search}”: ${shown(value)} ${plusMinus(variance)} (${percent(value, total.value) || "0%"})`);
  }
  const merged = data.groups.reduce((sum, group) => sum + (group.stacks ?? 0), 0);
  if (merged > 0) parts.push(`of ${count(merged)} stacks with less only the site was searched (--stacks keeps more)`);
  find("found").textContent = parts.join("; ");
}

function showTip(event, node, total) {
  const tip = find("tip");
  const lines = [];
  if (node.frame === null) lines.push("all");
  else {
    const { name, where, module } = words(node.frame);
    lines.push(name);
    if (where) lines.push(where);
    if (module) lines.push(module);
  }
  const own = node.own > 0 && node.children.size > 0 ? `, ${shown(node.own)} of it its own` : "";
  lines.push(`${shown(node.value)} ${plusMinus(node.variance)} (${percent(node.value, total.value)})${own}`);
  tip.textContent = lines.join("\n");
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

function hideTip() {
  find("tip").hidden = true;
}

// --- what can be chosen

/** Has one of a set of buttons be the chosen one. */
function choose(set, value) {
  state[set === "views" ? "view" : "unit"] = value;
  for (const input of find(set).querySelectorAll("input")) input.checked = input.value === value;
}

function makeChoices() {
  const choices = {
    views: Object.entries(VIEWS).map(([value, { label }]) => [value, label]),
    units: [["bytes", "bytes"], ["blocks", "blocks"]],
  };
  for (const [set, values] of Object.entries(choices)) {
    for (const [value, text] of values) {
      const label = element("label");
      const input = element("input", { type: "radio", name: set, value });
      input.addEventListener("change", () => {
        choose(set, value);
        draw();
      });
      label.append(input, ` ${text}`);
      find(set).append(label);
    }
  }
  choose("views", state.view);
  choose("units", state.unit);
  const on = (id, event, act) => find(id).addEventListener(event, () => {
    act(find(id));
    draw();
  });
  find("peak").disabled = peak === null;
  if (peak === null) find("peak").title = "what was in use then is not known any more";
  on("peak", "click", () => {
    state.b = peak;
    if (timeOf(data, state.a) > data.peak.time_s) state.a = 0;
  });
  on("all", "click", () => {
    state.a = 0;
    state.b = last;
  });
  find("search").value = state.search;
  find("with-found").value = state.found;
  const searched = () => {
    state.search = find("search").value.trim();
    state.found = find("with-found").value;
    state.hits = hitsOf(data, state.search);
    // As long as nothing is searched, nothing is left out.
    state.counts = countsOf(data, state.hits, isFiltered() ? state.found : "mark", state.search);
  };
  searched();
  on("search", "input", searched);
  on("with-found", "change", searched);
  find("by").parentElement.hidden = data.label_keys.length === 0;
  for (const key of data.label_keys) find("by").append(element("option", { value: key }, `label ${key}`));
  find("by").value = state.by;
  on("by", "change", (select) => {
    state.by = select.value;
    state.site = null;
    state.picked = null;
  });
  on("callers", "change", (input) => {
    state.from_callee = input.checked;
    state.focus = null;
  });
  on("out", "click", () => {
    state.focus = null;
    state.picked = null;
  });
  on("more", "click", () => {
    state.sites *= 4;
  });
}

function drawTotal({ total }, whole, beside) {
  const { label, needs_a } = VIEWS[state.view];
  const what = label.replace(/ (at|from) .*/, "");
  const when = needs_a ? `from ${nameOfMoment(state.a)} to ${nameOfMoment(state.b)}` : `at ${nameOfMoment(state.b)}`;
  find("moments").textContent = needs_a ? `A ${nameOfMoment(state.a)} · B ${nameOfMoment(state.b)}` : `B ${nameOfMoment(state.b)}`;
  const unit = state.unit === "bytes" ? "" : " blocks";
  const share = isFiltered() ? `, ${percent(total.value, whole.value) || "0%"} of all` : "";
  const red = beside ? `. The red curve: ${beside.name}` : "";
  find("total").textContent = `${what} ${when}: ${shown(total.value)}${unit}${plusMinus(total.variance, " ± ")}${share}${red}`;
}

let later = null;

/** What is chosen goes into the address when nothing was drawn for a while: browsers allow some hundred changes a minute. */
function keepInAddress() {
  clearTimeout(later);
  later = setTimeout(() => {
    try {
      history.replaceState(null, "", `#${linkOf(state)}`);
    } catch {
      // Where a page has no address of its own, as in a preview. It can do without.
    }
  }, 300);
}

function draw() {
  const numbers = (counts) => numbersOf(data, state.view, state.unit, state.a, state.b, counts);
  const all = numbers(state.counts);
  const beside = besideTheWhole();
  drawTotal(all, isFiltered() ? numbers().total : all.total, beside);
  drawTimeline(beside);
  drawSites(all);
  drawFlames(all);
  keepInAddress();
}

drawHead();
makeChoices();
listenToTimeline();
draw();
addEventListener("resize", draw);
// A link to another choice, opened where the page is open already.
addEventListener("hashchange", () => location.reload());
