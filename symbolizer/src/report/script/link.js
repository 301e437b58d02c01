// Links: what is chosen, as the end of the page's address, so that a link leads to it and a reload keeps it.

function linkOf({ view, unit, a, b, by, search, found, is_regex, left_out, zoom }) {
  const link = new URLSearchParams({ view, unit, a, b });
  if (by) link.set("by", by);
  if (search) {
    link.set("find", search);
    link.set("found", found);
    if (is_regex) link.set("regex", "1");
  }
  for (const name of left_out ?? []) link.append("out", name);
  if (zoom) link.set("zoom", zoom.join(","));
  return link.toString();
}

/** What such an end chooses. What this page does not have is not chosen: the link may be another page's. */
function chosenBy(data, link) {
  const said = new URLSearchParams(link);
  const most = momentsOf(data);
  const isMoment = (text) => /^\d{1,5}$/.test(text) && Number(text) <= most;
  const chosen = {};
  const take = (key, name, isThere, value = (text) => text) => {
    const text = said.get(name);
    if (text !== null && isThere(text)) chosen[key] = value(text);
  };
  take("view", "view", (text) => Object.hasOwn(VIEWS, text));
  take("unit", "unit", (text) => Object.hasOwn(UNITS, text) && (!isOfMappings(text) || hasMappings(data)));
  take("a", "a", isMoment, Number);
  take("b", "b", isMoment, Number);
  take("by", "by", (text) => groupingsOf(data).some(([by]) => by === text));
  take("search", "find", () => true);
  take("found", "found", (text) => ["mark", "only", "without"].includes(text));
  take("is_regex", "regex", (text) => text === "1", () => true);
  const names = new Set(data.frames.map(([name]) => data.texts[name]));
  const left_out = said.getAll("out").filter((name) => names.has(name));
  if (left_out.length > 0) chosen.left_out = left_out;
  const zoom = (said.get("zoom") ?? "").split(",").map(Number);
  const [from, to] = zoom;
  if (zoom.length === 2 && beginOf(data) <= from && from < to && to <= data.duration_s) chosen.zoom = zoom;
  return chosen;
}
