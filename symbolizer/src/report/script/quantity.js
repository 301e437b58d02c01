// Quantities in words: bytes, counts, times, and paths that are cut to fit.

/** As the command line writes bytes: `16.5 MiB`. */
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let power = 0;
  let left = Math.abs(value);
  while (left >= 1023.95 && power < units.length - 1) {
    left /= 1024;
    power++;
  }
  const shown = power === 0 ? left.toFixed(0) : left.toFixed(1);
  return `${value < 0 && Number(shown) !== 0 ? "-" : ""}${shown} ${units[power]}`;
}

/** With commas: `165,566`. */
function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function seconds(value) {
  return `${value.toFixed(value < 10 ? 3 : 1)} s`;
}

/** A length of time in the unit that people use for it: `12 ms`, `3.4 s`, `2.0 h`. */
function duration(value) {
  const units = [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "days"]];
  const [unit, name] = units.findLast(([unit]) => value >= unit) ?? units[0];
  const number = value / unit;
  return `${number.toFixed(number < 10 && unit >= 1 ? 1 : 0)} ${name}`;
}

/** The end of a path, in at most so many letters: its last part tells it from others. */
function endOf(path, room) {
  if (path.length <= room) return path;
  const parts = path.split("/");
  let end = parts.pop();
  while (parts.length > 0 && end.length + parts.at(-1).length + 3 <= room) end = `${parts.pop()}/${end}`;
  return end.length + 2 <= room ? `…/${end}` : `…${end.slice(Math.min(-1, 1 - room))}`;
}
