// Memory: the readings of the resident memory, and the lines of one that add up to it.

/** The reading that is nearest to a time; undefined: there is none. */
function readingAt(data, time) {
  let nearest;
  const distance = (reading) => Math.abs(reading.time_s - time);
  for (const reading of data.memory?.readings ?? []) {
    if (nearest === undefined || distance(reading) < distance(nearest)) nearest = reading;
  }
  return nearest;
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
