// Peaks: where the most was in use.

/** How many peaks have a button. */
const MOST_PEAKS = 5;
/** A fall between two peaks, as a part of the lower one. */
const FALL = 0.1;

/** The highest peaks, the highest first: a time, bytes, and the moment that shows what it was made of; null: none does. */
function peaksOf(data) {
  const known = spikesOf(data).map(({ time_s, bytes }, n) => ({ time_s, bytes, moment: lastOf(data) + 1 + n }));
  // The peak of a log that rotated may be before all that is kept.
  if (data.peak && !data.peak.is_known) known.unshift({ ...data.peak, moment: null });
  const peaks = data.spikes ? known : [...known, ...peaksOfSteps(data)];
  return peaks.sort((x, y) => y.bytes - x.bytes);
}

/** The steps whose highest values stand apart, but for that of the peak. A step's end shows what they were made of. */
function peaksOfSteps(data) {
  const { highest, end_s } = data.steps;
  const steps = highest.map((_, step) => step).sort((x, y) => highest[y] - highest[x] || x - y);
  const found = [];
  if (data.peak && data.peak.time_s >= data.from_s) found.push(end_s.findIndex((end) => end >= data.peak.time_s));
  const known = found.length;
  for (const step of steps) {
    if (found.length === MOST_PEAKS || highest[step] <= 0) break;
    const isApart = (other) => {
      const between = highest.slice(Math.min(step, other) + 1, Math.max(step, other));
      return Math.min(...between) < (1 - FALL) * highest[step];
    };
    if (found.every(isApart)) found.push(step);
  }
  return found.slice(known).map((step) => ({ bytes: highest[step], time_s: timeOf(data, step + 1), moment: step + 1 }));
}
