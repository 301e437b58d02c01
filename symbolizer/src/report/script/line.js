// Lines: what the table adds up by, and its lines.

/** What a line can stand for: sites, or a property of sites and blocks. */
function groupingsOf(data) {
  const labels = data.label_keys.map((key) => [`label:${key}`, `label ${key}`]);
  const dimensions = data.dimensions.map(({ name }) => [name, name]);
  const of_sites = [["", "site"], ["function", "function"], ["file", "file"], ["module", "module"], ["type", "type"]];
  return [...of_sites, ...dimensions, ...labels];
}

const dimensionOf = (data, by) => data.dimensions.find(({ name }) => name === by);

/** What a group is added up by: its site's frame, or the number of a text; null: it has none. */
function lineOf(data, group, by) {
  if (by.startsWith("label:")) return group.labels?.[data.label_keys.indexOf(by.slice(6))] ?? null;
  if (by === "type") return group.type ?? null;
  if (group.site === null || by === "") return group.site;
  const [name, file, , module] = data.frames[group.site];
  if (by === "function") return name;
  // Without debug information the module is all that is known of the file.
  return by === "file" && file >= 0 ? file : module;
}

/** The words of a line. */
function wordsOfLine(data, by, key) {
  if (by === "") return wordsOf(data, data.frames[key]);
  const name = dimensionOf(data, by)?.values[key].name ?? (key < 0 ? "(unknown)" : data.texts[key]);
  return { name, where: "", module: "" };
}

/** The lines with their own numbers and slack, largest first; equal ones in the order of the groups. */
function linesOf(data, numbers, by = "") {
  const lines = new Map();
  data.groups.forEach((group, index) => {
    const { value, variance } = numbers[index];
    const key = lineOf(data, group, by);
    if (value <= 0 || key === null) return;
    const line = lines.get(key) ?? { key, value: 0, variance: 0, slack: 0 };
    line.value += value;
    line.variance += variance;
    line.slack += group.slack?.[0] ?? 0;
    lines.set(key, line);
  });
  return [...lines.values()].sort((x, y) => y.value - x.value);
}

/** The lines of a dimension, of all blocks. */
function linesOfDimension({ values }, view, unit, a, b) {
  if (isOfMappings(unit)) return [];
  const lines = values.map((value, key) => ({ key, ...numberOf(value, view, unit, a, b), slack: 0 }));
  return lines.filter(({ value }) => value > 0).sort((x, y) => y.value - x.value);
}

/** The groups that a line is made of. */
function groupsOfLine(data, by, key) {
  const dimension = dimensionOf(data, by);
  if (dimension) return [dimension.values[key]];
  return data.groups.filter((group) => lineOf(data, group, by) === key);
}
