// Pointer: what the pointer and the keys do on the timeline.

/** The number of every curve at a moment, beside the pointer or beside the moment itself. */
function showMoment(moment, at) {
  const time = timeOf(data, moment);
  const { curves, x, y, floor, from, to } = drawn;
  if (time < from || time > to) return hideMoment();
  const lines = [nameOfMoment(data, moment)];
  const place = MARGIN.left + x(time);
  const parts = [svg("line", { class: "hair", x1: place, x2: place, y1: MARGIN.top, y2: MARGIN.top + floor + RATE_HEIGHT })];
  for (const { key, name, amount, words } of curves) {
    const value = amount(moment);
    if (value === null) continue;
    lines.push(`${key === "in_use" ? "in use" : name}: ${bytes(value)}${words?.(moment) ?? ""}`);
    parts.push(svg("circle", { class: `point ${key}`, cx: place, cy: MARGIN.top + y(value), r: 3.5 }));
  }
  const step = stepOf(data, moment);
  const length = timeOf(data, step + 1) - timeOf(data, step);
  if (moment > 0 && length > 0) lines.push(`allocated: ${bytes(data.steps.allocated[step] / length)}/s`);
  const near = data.markers.filter(({ time_s }) => Math.abs(x(time_s) - x(time)) < 4);
  lines.push(...near.slice(0, 3).map(({ time_s, name }) => `marker at ${seconds(time_s)}: ${name}`));
  find("pointer").replaceChildren(...parts);
  const box = find("timeline").getBoundingClientRect();
  showTip(at?.x ?? box.left + place, at?.y ?? box.top + MARGIN.top, lines);
}

/** What is known of a coarse moment, beside the pointer. */
function showCoarse(row, pointer) {
  const { x, y, floor } = drawn;
  const place = MARGIN.left + x(row.time_s);
  const plusMinus = row.error > 0 ? ` ± ${bytes(row.error * data.standard_errors)}` : "";
  const lines = [
    `${seconds(row.time_s)} (before all that is known in detail)`,
    `in use: ${bytes(row.bytes)}${plusMinus}`,
    `${data.is_joined ? "at most" : "highest"} since the moment before: ${bytes(row.highest)}`,
    ...(row.resident === null ? [] : [`resident (RSS): ${bytes(row.resident)}`]),
    ...row.sites.map(([site, least]) => `${wordsOf(data, data.frames[site]).name}: at least ${bytes(least)}`),
  ];
  const hair = { class: "hair", x1: place, x2: place, y1: MARGIN.top, y2: MARGIN.top + floor + RATE_HEIGHT };
  const point = { class: "point coarse", cx: place, cy: MARGIN.top + y(row.highest), r: 3.5 };
  find("pointer").replaceChildren(svg("line", hair), svg("circle", point));
  showTip(pointer.x, pointer.y, lines);
}

function hideMoment() {
  find("pointer")?.replaceChildren();
  hideTip();
}

/** The least part of the time that is shown: three steps. */
function zoomTo(from, to) {
  const whole = data.duration_s - beginOf(data);
  const least = Math.min((3 * (data.duration_s - data.from_s)) / last, whole);
  const length = Math.max(to - from, least);
  const begin = Math.min(Math.max((from + to - length) / 2, beginOf(data)), data.duration_s - length);
  state.zoom = length >= whole * 0.999 ? null : [begin, begin + length];
}

function listenToTimeline() {
  const picture = find("timeline");
  const time = (event) => timeScale(picture.clientWidth).time(event.clientX - picture.getBoundingClientRect().left - MARGIN.left);
  /** The peak that the pointer is on, or else the nearest moment. */
  const momentUnder = (event) => {
    const near = peaks.find(({ time_s, bytes: value, moment }) => {
      const box = picture.getBoundingClientRect();
      const place = [box.left + MARGIN.left + drawn.x(time_s), box.top + MARGIN.top + drawn.y(value)];
      return moment !== null && Math.hypot(event.clientX - place[0], event.clientY - place[1]) < 7;
    });
    return near?.moment ?? momentAt(data, time(event));
  };
  let begun = null;
  // Drawing replaces what is clicked, so the browser may see no double click.
  let clicked = { x: 0, time: -Infinity };
  const isDouble = (event) => Math.abs(event.clientX - clicked.x) < 4 && event.timeStamp - clicked.time < 500;
  const isDrag = (event) => begun !== null && Math.abs(event.clientX - begun.x) >= 4;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    begun = { x: event.clientX, time: time(event), is_range: event.shiftKey };
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (!isDrag(event)) {
      const pointer = { x: event.clientX, y: event.clientY };
      const row = coarseAt(data, time(event));
      return row ? showCoarse(row, pointer) : showMoment(momentUnder(event), pointer);
    }
    if (begun.is_range) {
      chooseRange(momentAt(data, begun.time), momentAt(data, time(event)));
      draw();
    }
    const ends = [begun.time, time(event)].map((it) => MARGIN.left + drawn.x(it)).sort((a, b) => a - b);
    const box = { class: "selection", x: ends[0], width: ends[1] - ends[0], y: MARGIN.top, height: drawn.floor + RATE_HEIGHT };
    find("pointer").replaceChildren(...(begun.is_range ? [] : [svg("rect", box)]));
    hideTip();
  });
  picture.addEventListener("pointerup", (event) => {
    if (begun === null) return;
    const was = begun;
    const isDragged = isDrag(event);
    begun = null;
    if (isDragged && was.is_range) chooseRange(momentAt(data, was.time), momentAt(data, time(event)));
    else if (isDragged) zoomTo(...[was.time, time(event)].sort((a, b) => a - b));
    else if (event.shiftKey) chooseRange(state.b, momentUnder(event));
    else {
      if (isDouble(event)) state.zoom = null;
      chooseMoment(momentUnder(event));
      clicked = { x: event.clientX, time: event.timeStamp };
    }
    draw();
  });
  picture.addEventListener("pointercancel", () => (begun = null));
  picture.addEventListener("pointerleave", hideMoment);
  picture.addEventListener("focus", () => picture.matches(":focus-visible") && showMoment(state.b));
  picture.addEventListener("blur", hideMoment);
  picture.addEventListener("keydown", (event) => {
    const act = keyOfTimeline(event);
    if (act === null) return;
    event.preventDefault();
    act();
    draw();
    showMoment(event.shiftKey && VIEWS[state.view].needs_a ? state.a : state.b);
  });
}

/** What a key does on the timeline; null: nothing. */
function keyOfTimeline({ key, shiftKey, ctrlKey, metaKey, altKey }) {
  if (ctrlKey || metaKey || altKey) return null;
  const [from, to] = shownTime();
  const zoomed = (factor) => () => {
    const length = (to - from) * factor;
    const middle = Math.min(Math.max(timeOf(data, state.b), from), to);
    zoomTo(middle - length / 2, middle + length / 2);
  };
  const moved = (step) => () => {
    const b = state.b > last ? momentAt(data, timeOf(data, state.b)) : state.b;
    if (shiftKey) {
      state.a = Math.min(Math.max(state.a + step, 0), b);
      if (!VIEWS[state.view].needs_a) state.view = "grown";
    } else state.b = Math.min(Math.max(b + step, 0), last);
    state.a = Math.min(state.a, state.b);
    // What moves stays in the part that is shown.
    const time = timeOf(data, shiftKey ? state.a : state.b);
    if (state.zoom && (time < from || time > to)) zoomTo(time - (to - from) / 2, time + (to - from) / 2);
  };
  const keys = {
    ArrowLeft: moved(-1), ArrowRight: moved(1), PageUp: moved(10), PageDown: moved(-10), Home: moved(-last), End: moved(last),
    "+": zoomed(0.5), "=": zoomed(0.5), "-": zoomed(2), Escape: () => (state.zoom = null), 0: () => (state.zoom = null),
  };
  return keys[key] ?? null;
}
