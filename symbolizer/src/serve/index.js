
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

function draw({ processes, left_out: leftOut }) {
  const order = { running: 0, ended: 1, gone: 2 };
  processes.sort((a, b) => order[a.state] - order[b.state] || b.in_use_bytes - a.in_use_bytes);
  const shown = processes.slice(0, 1000);
  const rows = document.createElement("tbody");
  for (const it of shown) {
    const row = rows.insertRow();
    link(cell(row, ""), `/process/${it.id}`, it.name || it.log);
    cell(row, String(it.pid || ""), "number");
    const state = cell(row, it.state, it.state === "running" ? "" : "faint");
    state.title = it.ending;
    if (it.error) cell(row, it.error, "bad").colSpan = 5;
    else {
      cell(row, bytes(it.in_use_bytes), "number");
      cell(row, bytes(it.in_use_error_bytes), "number faint");
      const growth = it.growth_bytes_per_second;
      cell(row, growth === null || it.state !== "running" ? "" : `${growth > 0 ? "+" : ""}${bytes(growth * 60)}/min`, "number");
      cell(row, bytes(it.allocated_bytes), "number");
      cell(row, `${bytes(it.log_bytes)}${it.damaged_places ? ", damaged" : ""}`, "number");
    }
    cell(row, it.command.slice(0, 200), "faint");
    const profiles = cell(row, "");
    link(profiles, `/debug/pprof/heap?pid=${it.pid}&log=${it.id}`, "heap");
    link(profiles, `/debug/pprof/allocs?pid=${it.pid}&log=${it.id}`, "allocs");
  }
  body.replaceChildren(...rows.rows);
  const running = processes.filter((it) => it.state === "running").length;
  const hidden = processes.length - shown.length + leftOut;
  about.textContent = processes.length === 0
    ? "no log yet: start a program with heapprof run"
    : `${running} running of ${processes.length} processes${hidden ? `, ${hidden} not shown` : ""}`;
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
