// Moments: 0 is the beginning, the others are the ends of the steps. Behind these come the peak, if it is known, and the other spikes.

/** The number of the last step's end. */
const lastOf = (data) => data.steps.end_s.length;

/** The peak and the other spikes, in the order of their moments. */
const spikesOf = (data) => [...(data.peak?.is_known ? [data.peak] : []), ...(data.spikes ?? [])];

/** The spike of a moment; undefined: it is the end of a step. */
const spikeAt = (data, moment) => spikesOf(data)[moment - lastOf(data) - 1];

/** How many moments there are beside 0. */
const momentsOf = (data) => lastOf(data) + spikesOf(data).length;

/** When the curve begins, in seconds after the start: with the coarse history, if the log has one. */
const beginOf = (data) => (data.coarse.length > 0 ? 0 : data.from_s);

/** The coarse moment whose state is nearest to a time before all that is known in detail; undefined: it is known in detail. */
function coarseAt(data, time) {
  if (time >= data.from_s) return undefined;
  return data.coarse.reduce((near, it) => (Math.abs(it.time_s - time) <= Math.abs(near.time_s - time) ? it : near), data.coarse[0]);
}

/** The number of the peak; null: what was in use then is not known. */
const peakOf = (data) => (data.peak?.is_known ? lastOf(data) + 1 : null);

/** The time of a moment, in seconds after the start. */
function timeOf(data, moment) {
  if (moment === 0) return data.from_s;
  if (moment > lastOf(data)) return spikeAt(data, moment).time_s;
  return Math.min(data.steps.end_s[moment - 1], data.duration_s);
}

/** The moment whose time is nearest to a time; spikes are not among them. */
function momentAt(data, time) {
  let nearest = 0;
  for (let moment = 1; moment <= lastOf(data); moment++) {
    if (Math.abs(timeOf(data, moment) - time) < Math.abs(timeOf(data, nearest) - time)) nearest = moment;
  }
  return nearest;
}

/** The step that a moment belongs to, from 0. */
function stepOf(data, moment) {
  if (moment <= lastOf(data)) return Math.max(moment - 1, 0);
  const step = data.steps.end_s.findIndex((end) => end >= timeOf(data, moment));
  return step < 0 ? lastOf(data) - 1 : step;
}

function nameOfMoment(data, moment) {
  if (moment === 0) return data.from_s > 0 ? `${seconds(data.from_s)} (what is known begins)` : "the start";
  if (moment === peakOf(data)) return `${seconds(data.peak.time_s)} (the peak)`;
  if (moment > lastOf(data)) return `${seconds(timeOf(data, moment))} (a peak)`;
  return seconds(timeOf(data, moment)) + (moment === lastOf(data) ? " (the end)" : "");
}
