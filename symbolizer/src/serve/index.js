
"use strict";
const token = new URLSearchParams(location.search).get("token");
const withToken = (path) => (token ? `${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}` : path);
const about = document.getElementById("about");
const body = document.querySelector("#processes tbody");

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let number = Math.abs(value);
  for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
  const digits = unit === 0 || number >= 100 ? 0 : 1;
  return `${value < 0 ? "-" : ""}${number.toFixed(digits)} ${units[unit]}`;
}

function cell(row, text, kind = "") {
  const made = row.insertCell();
  made.textContent = text;
  made.className = kind;
  return made;
}

function link(to, path, text) {
  const made = document.createElement("a");
  made.href = withToken(path);
  made.textContent = text;
  to.append(made, " ");
}

/** Standard errors of a 95 % interval, as in reports. */
const NINETY_FIVE = 1.96;

/** The curve of the newest moments: from 0 to the most. */
function curve(to, values) {
  if (values.length < 2) return;
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  const path = document.createElementNS(name, "path");
  const most = Math.max(1, ...values);
  const point = (value, index) => `${((100 * index) / (values.length - 1)).toFixed(1)},${(19 - (18 * value) / most).toFixed(1)}`;
  path.setAttribute("d", `M${values.map(point).join("L")}`);
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `in use, from ${bytes(values[0])} to ${bytes(values.at(-1))}`);
  svg.append(path);
  to.append(svg);
}

/**
 * The states of processes, in the order of the page. A file with another state has told of no
 * process.
 */
const STATES = ["running", "ended", "gone"];
const isOfProcess = ({ state }) => STATES.includes(state);

function draw({ processes, left_out: leftOut }) {
  const rank = (it) => (isOfProcess(it) ? STATES.indexOf(it.state) : STATES.length);
  processes.sort((a, b) => rank(a) - rank(b) || b.in_use_bytes - a.in_use_bytes);
  const shown = processes.slice(0, 1000);
  const rows = document.createElement("tbody");
  for (const it of shown) {
    const row = rows.insertRow();
    if (!isOfProcess(it)) {
      cell(row, it.log, "words").colSpan = 2;
      cell(row, it.state, it.error ? "bad" : "faint");
      cell(row, it.error ?? "", "bad words").colSpan = 9;
      continue;
    }
    link(cell(row, ""), `/process/${it.id}`, it.name || it.log);
    cell(row, String(it.pid || ""), "number");
    const state = cell(row, it.state, it.state === "running" ? "" : "faint");
    state.title = it.ending;
    const left = it.left_out_records ? [`${it.left_out_records} records had no room in memory: the numbers are too low`] : [];
    const doubts = [...(it.error ? [it.error] : []), ...it.faults, ...left];
    const number = cell(row, bytes(it.in_use_bytes), "number");
    if (doubts.length > 0) {
      number.className = "number bad";
      number.title = doubts.join("\n");
      number.textContent += " !";
    }
    cell(row, it.in_use_error_bytes > 0 ? bytes(NINETY_FIVE * it.in_use_error_bytes) : "", "number faint less");
    curve(cell(row, "", "less"), it.in_use_past_bytes);
    const growth = it.growth_bytes_per_second;
    const has_growth = growth !== null && it.state === "running";
    const is_early = growth === null && it.state === "running";
    const rate = cell(row, has_growth ? `${growth > 0 ? "+" : ""}${bytes(growth * 60)}/min` : "", "number less");
    if (is_early) {
      rate.textContent = "too early";
      rate.className += " faint";
      rate.title = "what the process sets up at its beginning is no growth";
    }
    const error = NINETY_FIVE * it.growth_error_bytes_per_second;
    if (has_growth && error > 0) {
      rate.title = `± ${bytes(error * 60)}/min at most (95 %)`;
      if (Math.abs(growth) < error) {
        rate.className += " faint";
        rate.title += ": may be noise";
      }
    }
    cell(row, bytes(it.allocated_bytes), "number more");
    cell(row, it.resident_bytes === null ? "" : bytes(it.resident_bytes), "number more");
    cell(row, `${bytes(it.log_bytes)}${it.faults.length > 0 ? ", damaged" : ""}`, "number more");
    const doubt = doubts.join("; ");
    cell(row, doubt || it.command.slice(0, 200), `${doubt ? "bad" : "faint"} words more`);
    const profiles = cell(row, "");
    link(profiles, `/debug/pprof/heap?pid=${it.pid}&log=${it.id}`, "heap");
    link(profiles, `/debug/pprof/allocs?pid=${it.pid}&log=${it.id}`, "allocs");
  }
  // Who goes through the links by keyboard stays where they are.
  const focused = body.contains(document.activeElement) ? document.activeElement.href : null;
  body.replaceChildren(...rows.rows);
  if (focused) [...body.querySelectorAll("a")].find((it) => it.href === focused)?.focus({ preventScroll: true });
  const running = processes.filter((it) => it.state === "running").length;
  const all = processes.filter(isOfProcess).length;
  const others = processes.length - all;
  const hidden = processes.length - shown.length + leftOut;
  about.textContent = processes.length === 0
    ? "no log yet: start a program with heapprof run"
    : `${running} running of ${all} processes${others ? `, ${others} other files` : ""}${hidden ? `, ${hidden} not shown` : ""}`;
  about.className = "faint";
}

async function refresh() {
  try {
    const answer = await fetch(withToken("/processes"));
    if (!answer.ok) throw new Error(await answer.text());
    draw(await answer.json());
  } catch (error) {
    about.textContent = `no answer: ${error.message}`;
    about.className = "bad";
  }
  setTimeout(refresh, document.hidden ? 10000 : 2000);
}
refresh();
