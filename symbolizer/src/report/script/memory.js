// Memory: the readings of the resident memory, and the lines of one that add up to it.

/** The reading that is nearest to a time; undefined: there is none. */
function readingAt(data, time, readings = data.memory?.readings ?? []) {
  let nearest;
  const distance = (reading) => Math.abs(reading.time_s - time);
  for (const reading of readings) {
    if (nearest === undefined || distance(reading) < distance(nearest)) nearest = reading;
  }
  return nearest;
}

/** The reading whose lines explain it, nearest to a moment; without one, the nearest reading. */
function explainedReadingAt(data, time) {
  const nearest = readingAt(data, time);
  const isSame = (reading) => Math.abs(reading.resident - nearest.resident) <= nearest.resident / 10;
  const explained = (data.memory?.readings ?? []).filter((reading) => reading.is_explained && isSame(reading));
  return readingAt(data, time, explained) ?? nearest;
}

/** The lines of a reading: each begins where the one before it ends. */
function waterfallOf(data, { lines }) {
  let sum = 0;
  return lines.map(([name, bytes, remedy]) => {
    const from = sum;
    sum += bytes;
    return { name: data.memory.names[name], bytes, remedy: data.texts[remedy], from, to: sum };
  });
}
