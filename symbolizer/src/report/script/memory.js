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

/** Most whole readings that may stand for one that does not add up, as in `heapprof rss`. */
const MOST_WHOLE = 3;

/** The reading that is nearest to a time, or if it does not add up, a whole one near it that does. */
function explainedReadingAt(data, time) {
  const nearest = readingAt(data, time);
  if (nearest === undefined || nearest.is_explained || nearest.has_own_detail) return nearest;
  const inUse = (reading) => waterfallOf(data, reading).find((line) => line.name === "blocks in use")?.bytes ?? 0;
  const isNear = (a, b) => Math.abs(a - b) <= nearest.resident / 10;
  const isSame = (reading) => isNear(reading.resident, nearest.resident) && isNear(inUse(reading), inUse(nearest));
  const isOther = (reading) => reading !== nearest && reading.is_whole && isSame(reading);
  const distance = (reading) => Math.abs(reading.time_s - time);
  const whole = data.memory.readings.filter(isOther).sort((a, b) => distance(a) - distance(b)).slice(0, MOST_WHOLE);
  return whole.find((reading) => reading.is_explained) ?? (nearest.is_whole ? nearest : (whole[0] ?? nearest));
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
