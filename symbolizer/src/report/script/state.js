// State: what is chosen. The page is drawn from it, and from nothing else.

const data = JSON.parse(document.getElementById("data").textContent);
const last = lastOf(data);
const peak = peakOf(data);
const peaks = peaksOf(data);

/** The moment that is shown at first: the end, or the moment before the program gives back all that it had, because it ends. */
function firstMoment() {
  // Of several processes most have ended, and given back what they had, when the last one has.
  if (data.processes && peak !== null) return peak;
  const { until_s } = data.findings;
  return until_s === null ? last : momentAt(data, until_s);
}

const state = {
  view: "in_use",
  unit: "bytes",
  a: 0,
  b: firstMoment(),
  // The part of the time that is shown, in seconds; null: all of it.
  zoom: null,
  // The curves that are not drawn.
  hidden: new Set(),
  from_callee: false,
  // What is searched, what is done with what is found, and why nothing can be.
  search: "",
  is_regex: false,
  found: "mark",
  fault: "",
  finder: null,
  hits: [],
  // Functions whose stacks are left out, and which groups are left.
  left_out: [],
  counts: [],
  // What the table is by, how many lines it shows, and those that are chosen in it.
  by: "",
  shown_lines: 15,
  lines: [],
  // The node of the flame graph that one looks into.
  focus: null,
  // The groups whose curve is drawn beside the whole, with their name.
  picked: null,
  ...chosenBy(data, location.hash.slice(1)),
};
if (timeOf(data, state.a) > timeOf(data, state.b)) state.a = 0;

const isFiltered = () => (state.finder !== null && state.found !== "mark") || state.left_out.length > 0;

/** Finds anew what is searched. */
function searchAnew() {
  state.fault = "";
  try {
    state.finder = finderOf(state.search, state.is_regex);
  } catch (error) {
    state.finder = null;
    state.fault = error.message;
  }
  state.hits = hitsOf(data, state.finder);
  // As long as nothing is searched, nothing is left out for it.
  state.counts = countsOf(data, state.hits, state.finder === null ? "mark" : state.found, state.finder, state.left_out);
}

/** Looks at nothing in particular any more. */
function pickNothing() {
  state.lines = [];
  state.focus = null;
  state.picked = null;
}

/** Chooses the time from one moment to another, and a view that needs both. */
function chooseRange(one, other) {
  [state.a, state.b] = timeOf(data, one) <= timeOf(data, other) ? [one, other] : [other, one];
  if (!VIEWS[state.view].needs_a) state.view = "grown";
}

/** Chooses the end of the time. */
function chooseMoment(moment) {
  state.b = moment;
  if (timeOf(data, state.a) > timeOf(data, state.b)) state.a = 0;
}
