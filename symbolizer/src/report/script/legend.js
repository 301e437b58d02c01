// Legend: what each line and mark in the timeline is. A curve can be hidden, and then the others have its room.

function drawLegend(curves) {
  const had = document.activeElement?.dataset?.curve;
  const entry = (key, name) => {
    const sample = svg("svg", { width: 22, height: 10, class: "sample", "aria-hidden": "true" });
    if (key === "in_use" && !data.is_exact) sample.append(svg("rect", { class: "band", x: 0, y: 1, width: 22, height: 8 }));
    if (key === "rate") sample.append(svg("rect", { class: "rate", x: 6, y: 1, width: 10, height: 9 }));
    else if (key === "peak") sample.append(svg("circle", { class: "peak", cx: 11, cy: 5, r: 4 }));
    else if (key === "marker") sample.append(svg("line", { class: "marker", x1: 11, x2: 11, y1: 0, y2: 10 }));
    else if (key === "stopped") sample.append(svg("rect", { class: "stopped", x: 0, y: 0, width: 22, height: 10 }));
    else sample.append(svg("path", { class: `curve ${key}`, d: "M1 5L21 5" }));
    return [sample, element("span", {}, name)];
  };
  const toggles = curves.map(({ key, name }) => {
    const button = element("button", { type: "button", "aria-pressed": String(!state.hidden.has(key)), "data-curve": key, title: "show or hide" });
    button.append(...entry(key, name));
    button.addEventListener("click", () => {
      if (!state.hidden.delete(key)) state.hidden.add(key);
      draw();
    });
    return button;
  });
  const others = [["rate", "allocated in each step"]];
  if (peaks.length > 0) others.push(["peak", "peaks"]);
  if (data.markers.length > 0) others.push(["marker", "markers of the program"]);
  if ((data.stops ?? []).length > 0) others.push(["stopped", "nothing was recorded"]);
  const plain = others.map(([key, name]) => {
    const made = element("span", { class: "entry" });
    made.append(...entry(key, name));
    return made;
  });
  find("legend").replaceChildren(...toggles, ...plain);
  if (had) find("legend").querySelector(`[data-curve=${had}]`)?.focus();
}
