// Elements: making and finding them. All text goes in as text: names are of files that anybody may have written.

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
  if (text !== "") made.textContent = text;
  return made;
}

/** An amount in the unit that is chosen. */
const shown = (value) => (state.unit === "blocks" ? count(value) : bytes(value));
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "");

/** Half the interval, in words; nothing where all is exact. Of what grew or shrank it is at most that. */
function plusMinus(variance, beside = "± ") {
  if (data.is_exact || variance === 0) return "";
  const bound = state.view === "grown" || state.view === "shrunk" ? "at most " : "";
  return beside + bound + shown(Math.sqrt(variance) * data.standard_errors);
}

/** Shows lines near a place in the window. */
function showTip(x, y, lines) {
  const tip = find("tip");
  tip.textContent = lines.filter(Boolean).join("\n");
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

function hideTip() {
  find("tip").hidden = true;
}
