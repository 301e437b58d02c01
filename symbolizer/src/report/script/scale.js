// Scales: from times and bytes to places in the picture of the timeline, and back.

const MARGIN = { left: 84, right: 16, top: 22, bottom: 22 };
const RATE_HEIGHT = 46;

/** Sensible steps of a scale from `least` to `most`: about so many. */
function ticks(least, most, number, base) {
  const length = most - least;
  if (!(length > 0)) return [];
  let step = base ** Math.floor(Math.log(length / number) / Math.log(base));
  const finer = base === 2 ? [1, 2, 4] : [1, 2, 5, 10];
  step = finer.map((n) => n * step).find((it) => length / it <= number) ?? 4 * step;
  const first = Math.ceil(least / step - 1e-9);
  const count = Math.floor(most / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, n) => (first + n) * step);
}

/** The part of the time that is shown, in seconds. */
function shownTime() {
  const [from, to] = state.zoom ?? [beginOf(data), data.duration_s];
  return [from, Math.max(to, from + 1e-9)];
}

/** From times to places in a picture of that width, and back. Places begin at the left edge of the curves. */
function timeScale(width) {
  const [from, to] = shownTime();
  const wide = Math.max(width - MARGIN.left - MARGIN.right, 1);
  return {
    wide,
    x: (time) => ((time - from) / (to - from)) * wide,
    time: (x) => from + (Math.min(Math.max(x, 0), wide) / wide) * (to - from),
  };
}

/** A time on the axis, as exact as the distance of its neighbours needs. */
function axisTime(time, step) {
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.max(step, 1e-6)))));
  return `${+time.toFixed(places)} s`;
}
