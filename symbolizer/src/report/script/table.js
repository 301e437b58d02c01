// Table: the sites, or what else the numbers are added up by.

/** How many letters of a place fit; measured once a width. */
const room = { width: 0, letters: 40 };

function roomForWhere() {
  // In a narrow window, places stand below their functions.
  const width = find("where").clientWidth || find("by-what").clientWidth;
  if (width > 0 && width !== room.width) {
    const probe = element("span", { class: "probe" }, "x".repeat(100));
    document.body.append(probe);
    room.width = width;
    room.letters = Math.max(8, Math.floor((width - 16) / (probe.offsetWidth / 100)));
    probe.remove();
  }
  return room.letters;
}

/** The lines of the table. */
function tableLines({ numbers }) {
  const dimension = dimensionOf(data, state.by);
  if (dimension) return linesOfDimension(dimension, state.view, state.unit, state.a, state.b);
  return linesOf(data, numbers, state.by);
}

const ages = new Map(data.ages.map((it) => [it.site, it]));

/** The median lifetime of a site's blocks, in words. */
function lifetimeOf({ lifetime_s, samples: [freed] }) {
  return lifetime_s === null ? (freed > 0 ? "most stay" : "all stay") : duration(lifetime_s);
}

function drawTable(all) {
  const lines = tableLines(all);
  const isBlocks = !isOfMappings(state.unit);
  const hasAges = state.by === "" && isBlocks && data.ages.length > 0;
  const hasSlack = dimensionOf(data, state.by) === undefined && isBlocks;
  const classes = find("sites").classList;
  classes.toggle("without-ages", !hasAges);
  classes.toggle("without-slack", !hasSlack);
  classes.toggle("without-where", state.by !== "");
  classes.toggle("exact", data.is_exact || !isBlocks);
  find("by-what").textContent = state.by === "" ? "function" : state.by.replace("label:", "label ");
  const notes = [];
  if (dimensionOf(data, state.by)) {
    if (isFiltered()) notes.push("the numbers are of all blocks, found or not");
    if (!isBlocks) notes.push(`nothing tells the ${state.by} of mappings`);
  }
  if (hasAges || hasSlack) notes.push(`slack and ages are those at ${seconds(data.pasts_s)}`);
  const note = notes.join("; ");
  find("by-note").textContent = note === "" ? "" : `${note[0].toUpperCase()}${note.slice(1)}.`;
  const where = roomForWhere();
  const rows = lines.slice(0, state.shown_lines).map((line) => rowOf(line, all.total, where));
  find("sites").tBodies[0].replaceChildren(...rows);
  find("nothing").hidden = lines.length > 0;
  find("more").hidden = lines.length <= state.shown_lines;
  find("more").textContent = `more (${count(lines.length - state.shown_lines)})`;
}

function rowOf(line, total, letters) {
  const { name, where, module } = wordsOfLine(data, state.by, line.key);
  const isChosen = state.lines.includes(line.key);
  const row = element("tr", { tabindex: "0", "aria-selected": String(isChosen), title: [name, where, module].filter(Boolean).join("\n") });
  row.classList.toggle("chosen", isChosen);
  const its = state.by === "" ? ages.get(line.key) : undefined;
  const place = endOf(where || module, letters);
  const cell = element("td", { class: "function" });
  cell.append(element("span", { class: "name" }, name), element("span", { class: "where below" }, place));
  row.append(
    element("td", { class: "number" }, shown(line.value)),
    element("td", { class: "number error" }, plusMinus(line.variance, "")),
    element("td", { class: "number" }, percent(line.value, total.value)),
    element("td", { class: "number slack" }, line.slack > 0 ? bytes(line.slack) : ""),
    element("td", { class: "number ages" }, its ? lifetimeOf(its) : ""),
    element("td", { class: "number ages" }, its?.age_s == null ? "" : duration(its.age_s)),
    cell,
    element("td", { class: "where" }, place),
  );
  const pick = ({ shiftKey }) => {
    const others = state.lines.filter((key) => key !== line.key);
    if (shiftKey) pickLines(isChosen ? others : [...state.lines, line.key]);
    else pickLines(isChosen && others.length === 0 ? [] : [line.key]);
    draw();
  };
  row.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault()); // no text is selected
  row.addEventListener("click", pick);
  row.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (step) {
      event.preventDefault();
      row[step]?.focus();
    }
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const place = [...row.parentElement.children].indexOf(row);
    pick(event);
    find("sites").tBodies[0].children[place]?.focus();
  });
  return row;
}

/** Draws the curve of some lines beside the whole. */
function pickLines(keys) {
  state.lines = keys;
  const names = keys.map((key) => wordsOfLine(data, state.by, key).name);
  const name = names.length > 2 ? `${names.length} lines of the table` : names.join(" + ");
  state.picked = keys.length === 0 ? null : { groups: keys.flatMap((key) => groupsOfLine(data, state.by, key)), name };
}

/** Shows as many lines as it takes to show that one. */
function showLine(key) {
  const lines = tableLines(numbersOf(data, state.view, state.unit, state.a, state.b, state.counts));
  const place = lines.findIndex((line) => line.key === key);
  state.shown_lines = Math.max(state.shown_lines, place + 1);
}
