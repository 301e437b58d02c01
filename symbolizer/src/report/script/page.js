// Page: what can be chosen, and drawing it all.

function makeChoices() {
  const choices = {
    views: Object.entries(VIEWS).map(([value, { label }]) => [value, label]),
    units: Object.entries(UNITS).filter(([unit]) => !isOfMappings(unit) || hasMappings(data)).map(([value, { label }]) => [value, label]),
  };
  for (const [set, values] of Object.entries(choices)) {
    const key = set === "views" ? "view" : "unit";
    for (const [value, text] of values) {
      const label = element("label");
      const input = element("input", { type: "radio", name: set, value });
      input.addEventListener("change", () => {
        state[key] = value;
        if (isOfMappings(state.unit) && state.view === "allocated") state.view = "grown";
        draw();
      });
      label.append(input, ` ${text}`);
      find(set).append(label);
    }
  }
  const on = (id, event, act) => find(id).addEventListener(event, () => {
    act(find(id));
    draw();
  });
  makePeaks();
  on("all", "click", () => chooseRange(0, last));
  on("whole-time", "click", () => (state.zoom = null));
  on("detail-time", "click", () => zoomTo(data.from_s, data.duration_s));
  for (const id of ["search", "with-found", "regex"]) {
    on(id, id === "search" ? "input" : "change", () => {
      state.search = find("search").value.trim();
      state.found = find("with-found").value;
      state.is_regex = find("regex").checked;
      searchAnew();
    });
  }
  find("search").value = state.search;
  find("with-found").value = state.found;
  find("regex").checked = state.is_regex;
  for (const [value, text] of groupingsOf(data)) find("by").append(element("option", { value }, text));
  on("by", "change", (select) => {
    state.by = select.value;
    pickNothing();
  });
  on("callers", "change", (input) => {
    state.from_callee = input.checked;
    state.focus = null;
  });
  on("out", "click", () => {
    state.focus = null;
    state.picked = null;
  });
  on("more", "click", () => (state.shown_lines *= 4));
}

/** A button for each peak. */
function makePeaks() {
  find("peaks").hidden = peaks.length === 0;
  peaks.slice(0, MOST_PEAKS).forEach(({ bytes: value, time_s, moment }, n) => {
    const words = { type: "button", title: moment === null ? "what was in use then is not known any more" : "show what it was made of" };
    const button = element("button", words, `${bytes(value)} at ${seconds(time_s)}`);
    button.disabled = moment === null;
    button.addEventListener("click", () => {
      chooseMoment(moment);
      const [from, to] = shownTime();
      if (time_s < from || time_s > to) state.zoom = null;
      draw();
    });
    if (n === 0) button.id = "peak";
    find("peaks").append(button);
  });
}

/** Shows what is chosen in the controls. */
function drawChoices() {
  for (const input of find("views").querySelectorAll("input")) {
    input.checked = input.value === state.view;
    input.disabled = input.value === "allocated" && isOfMappings(state.unit);
  }
  for (const input of find("units").querySelectorAll("input")) input.checked = input.value === state.unit;
  find("by").value = state.by;
  const isShown = ({ moment }) => moment === state.b;
  [...find("peaks").querySelectorAll("button")].forEach((button, n) => button.setAttribute("aria-pressed", String(isShown(peaks[n]))));
}

function drawTotal({ total }, whole) {
  const { label, needs_a } = VIEWS[state.view];
  const what = `${isOfMappings(state.unit) ? `${UNITS[state.unit].label} ` : ""}${label.replace(/ (at|from) .*/, "")}`;
  const name = (moment) => nameOfMoment(data, moment);
  const when = needs_a ? `from ${name(state.a)} to ${name(state.b)}` : `at ${name(state.b)}`;
  find("moments").textContent = needs_a ? `A ${name(state.a)} · B ${name(state.b)}` : `B ${name(state.b)}`;
  const unit = state.unit === "blocks" ? " blocks" : "";
  const share = isFiltered() ? `, ${percent(total.value, whole.value) || "0%"} of all` : "";
  find("total").textContent = `${what} ${when}: ${shown(total.value)}${unit}${plusMinus(total.variance, " ± ")}${share}`;
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
  drawChoices();
  drawTotal(all, isFiltered() ? numbers().total : all.total);
  drawTimeline();
  drawWaterfall();
  drawTable(all);
  drawFlames(all);
  drawLeftOut();
  keepInAddress();
}

searchAnew();
drawHead();
makeChoices();
listenToTimeline();
draw();
addEventListener("resize", draw);
// A link to another choice, opened where the page is open already.
addEventListener("hashchange", () => location.reload());
