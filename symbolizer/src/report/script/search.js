// Search: what a text or a regular expression finds in the frames and labels of groups, and which groups are left.

/** What finds a text, capitals or not; null: nothing is searched.
 * @throws SyntaxError if it is no regular expression. */
function finderOf(text, is_regex) {
  if (text === "") return null;
  if (is_regex) {
    const pattern = new RegExp(text, "iu");
    return (searched) => pattern.test(searched);
  }
  const small = text.toLowerCase();
  return (searched) => searched.toLowerCase().includes(small);
}

/** Of each frame, whether its function, its file with line, or its module has it. */
function hitsOf(data, finder) {
  if (finder === null) return data.frames.map(() => false);
  return data.frames.map((frame) => Object.values(wordsOf(data, frame)).some((text) => text !== "" && finder(text)));
}

/** The labels of a group, as `key=value`. */
function labelsOf(data, group) {
  const labels = data.label_keys.map((key, index) => [key, group.labels[index]]);
  return labels.filter(([, value]) => value >= 0).map(([key, value]) => `${key}=${data.texts[value]}`);
}

/** Whether a group has a hit in its stack, or what is searched in a label. Of stacks whose callers are not told apart the site alone is
 * searched. */
function isFound(data, group, hits, finder) {
  if (finder === null) return false;
  return group.stack.some((frame) => hits[frame]) || labelsOf(data, group).some(finder);
}

/** Of each group, whether it counts: all do where hits are only marked, and else those that are found ("only") or the others ("without").
 * Groups that pass a function that is left out never do. */
function countsOf(data, hits, found, finder, left_out = []) {
  const without = new Set(left_out);
  const isOut = data.frames.map((frame) => without.has(data.texts[frame[0]]));
  return data.groups.map((group) => {
    if (without.size > 0 && group.stack.some((frame) => isOut[frame])) return false;
    return found === "mark" || isFound(data, group, hits, finder) === (found === "only");
  });
}
