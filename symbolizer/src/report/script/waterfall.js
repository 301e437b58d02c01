// Waterfall: the lines that add up to the resident memory at B, as `heapprof rss --at` has them.

function drawWaterfall() {
  const reading = explainedReadingAt(data, timeOf(data, state.b));
  find("memory").hidden = reading === undefined;
  if (reading === undefined) return;
  const at = `${bytes(reading.resident)} resident, at ${seconds(reading.time_s)}, of the readings whose lines explain them the nearest to B`;
  find("memory-what").textContent = `where the memory is: ${at}`;
  const lines = waterfallOf(data, reading);
  const ends = [0, reading.resident, ...lines.map(({ to }) => to)];
  const [least, most] = [Math.min(...ends), Math.max(1, ...ends)];
  const place = (value) => (100 * (value - least)) / (most - least);
  const row = (name, value, remedy, from, to, kind) => {
    const made = element("tr", { class: kind });
    const bar = element("td", { class: "bar" });
    const filled = element("div", { class: kind });
    filled.style.left = `${place(Math.min(from, to)).toFixed(2)}%`;
    filled.style.width = `${(place(Math.max(from, to)) - place(Math.min(from, to))).toFixed(2)}%`;
    bar.append(filled);
    made.append(element("td", {}, name), element("td", { class: "number" }, bytes(value)),
      element("td", { class: "number" }, percent(value, reading.resident)), bar, element("td", { class: "remedy" }, remedy));
    return made;
  };
  const kind = (name, value) => (value < 0 ? "less" : name === "blocks in use" ? "in-use" : name === "not explained" ? "unknown" : "more");
  const rows = lines.map(({ name, bytes: value, remedy, from, to }) => row(name, value, remedy, from, to, kind(name, value)));
  rows.push(row("resident", reading.resident, "", 0, reading.resident, "resident"));
  find("waterfall").tBodies[0].replaceChildren(...rows);
  const isPart = reading.lines.length === 0;
  const words = isPart ? ["the lines are of all blocks, and this page is of a part"] : reading.remarks.map((remark) => data.texts[remark]);
  find("memory-notes").textContent = words.join("; ");
}
