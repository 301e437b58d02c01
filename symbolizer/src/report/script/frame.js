// Frames: the words of a frame, and what makes two frames one.

/** The function, the file with line, and the module of a frame (an entry of `data.frames`). */
function wordsOf(data, [name, file, line, module]) {
  const text = (number) => (number < 0 ? "" : data.texts[number]);
  return { name: text(name), where: text(file) + (line > 0 ? `:${line}` : ""), module: text(module) };
}

/** The function of a frame, by its number. */
const functionOf = (data, frame) => data.texts[data.frames[frame][0]];

/** What makes two frames one in the flame graph: the function and the module, and not the line. */
function nameOf(data, frame) {
  const [text, , , module] = data.frames[frame];
  return `${text} ${module}`;
}
