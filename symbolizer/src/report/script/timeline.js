// Timeline: the picture of all curves over time.

/** What was drawn last: for the pointer. */
let drawn = null;

function drawTimeline() {
  const picture = find("timeline");
  const { clientWidth: width, clientHeight: height } = picture;
  const { x, wide } = timeScale(width);
  const [from, to] = shownTime();
  const curves = curvesOf();
  const visible = curves.filter(({ key }) => !state.hidden.has(key));
  const floor = height - MARGIN.bottom - RATE_HEIGHT - MARGIN.top;
  const most = Math.max(1, ...visible.map((curve) => highestOf(curve, from, to)));
  const y = (value) => floor - (value / most) * floor;
  // Moments may stand at the edges, and their names above.
  const plot = svg("svg", { x: MARGIN.left, y: MARGIN.top, width: wide, height: floor + RATE_HEIGHT });
  const parts = [];
  for (const value of ticks(0, most, Math.max(2, floor / 42), 2)) {
    const place = MARGIN.top + y(value);
    parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: MARGIN.left + wide, y1: place, y2: place }));
    parts.push(svg("text", { x: MARGIN.left - 6, y: place + 4, "text-anchor": "end" }, bytes(value)));
  }
  const marks = ticks(from, to, Math.max(2, wide / 110), 10);
  for (const time of marks) {
    const label = axisTime(time, marks.length > 1 ? marks[1] - marks[0] : 1);
    parts.push(svg("text", { x: MARGIN.left + x(time), y: height - 6, "text-anchor": "middle" }, label));
  }
  drawBackground(plot, x, floor);
  for (const curve of visible) drawCurve(plot, curve, x, y, floor);
  parts.push(...drawRate(plot, x, floor));
  drawMarks(plot, x, y, floor);
  parts.push(plot, ...drawMoments(x, floor, from, to), svg("g", { id: "pointer" }));
  picture.replaceChildren(...parts);
  drawn = { curves: visible, x, y, floor, from, to };
  drawLegend(curves);
  find("whole-time").hidden = state.zoom === null;
  find("detail-time").hidden = data.coarse.length === 0 || from > data.from_s - 1e-6;
}

function drawBackground(plot, x, floor) {
  if (data.coarse.length > 0) {
    const made = svg("rect", { class: "coarse", x: x(0), width: Math.max(1, x(data.from_s) - x(0)), y: 0, height: floor + RATE_HEIGHT });
    made.append(svg("title", {}, "coarse: the segments of this time are not kept"));
    plot.append(made);
  }
  for (const { from_s, to_s } of data.stops ?? []) {
    const made = svg("rect", { class: "stopped", x: x(from_s), width: Math.max(1, x(to_s) - x(from_s)), y: 0, height: floor });
    made.append(svg("title", {}, "nothing was recorded"));
    plot.append(made);
  }
  if (!VIEWS[state.view].needs_a) return;
  const [a, b] = [state.a, state.b].map((moment) => x(timeOf(data, moment)));
  plot.append(svg("rect", { class: "range", x: Math.min(a, b), width: Math.abs(b - a), y: 0, height: floor + RATE_HEIGHT }));
}

/** What was allocated in each step, below the curves. */
function drawRate(plot, x, floor) {
  const { allocated, end_s } = data.steps;
  const fastest = Math.max(1, ...allocated);
  const ground = floor + RATE_HEIGHT;
  allocated.forEach((value, n) => {
    const tall = (value / fastest) * (RATE_HEIGHT - 12);
    const [left, right] = [x(timeOf(data, n)), x(timeOf(data, n + 1))];
    if (tall > 0) plot.append(svg("rect", { class: "rate", x: left, width: Math.max(0.5, right - left - 0.5), y: ground - tall, height: tall }));
  });
  const per_second = fastest / Math.max((end_s[0] ?? 0) - data.from_s, 1e-9);
  const text = (y, words) => svg("text", { x: MARGIN.left - 6, y: MARGIN.top + ground - RATE_HEIGHT + y, "text-anchor": "end" }, words);
  return [text(22, "allocated,"), text(35, `${bytes(per_second)}/s`)];
}

/** The markers of the program, and the peaks. */
function drawMarks(plot, x, y, floor) {
  for (const { time_s, name } of data.markers) {
    if (time_s < beginOf(data)) continue;
    const made = svg("line", { class: "marker", x1: x(time_s), x2: x(time_s), y1: 0, y2: floor + RATE_HEIGHT });
    made.append(svg("title", {}, `${seconds(time_s)}: ${name}`));
    plot.append(made);
  }
  if (state.hidden.has("in_use")) return;
  peaks.forEach(({ time_s, bytes: value }, n) => {
    if (time_s < beginOf(data)) return;
    const made = svg("circle", { class: "peak", cx: x(time_s), cy: y(value), r: n === 0 ? 4 : 3 });
    made.append(svg("title", {}, `peak ${n + 1}: ${bytes(value)} at ${seconds(time_s)}`));
    plot.append(made);
  });
}

function drawMoments(x, floor, from, to) {
  const moments = VIEWS[state.view].needs_a ? [["A", state.a], ["B", state.b]] : [["B", state.b]];
  return moments.filter(([, moment]) => timeOf(data, moment) >= from && timeOf(data, moment) <= to).flatMap(([name, moment]) => {
    const place = MARGIN.left + x(timeOf(data, moment));
    return [
      svg("line", { class: "moment", x1: place, x2: place, y1: MARGIN.top - 4, y2: MARGIN.top + floor + RATE_HEIGHT }),
      svg("text", { class: "named", x: place, y: MARGIN.top - 8, "text-anchor": "middle" }, name),
    ];
  });
}
