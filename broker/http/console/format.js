// Numbers, sizes and times as they are read.

const WHOLE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat("en-GB", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function count(value) {
  return typeof value === "number" ? WHOLE.format(value) : "–";
}

export function rate(value) {
  if (typeof value !== "number") return "–";
  return value > 0 && value < 10 ? TENTH.format(value) : WHOLE.format(value);
}

// 1 KB is 1024 B, as in every setting.
export function size(bytes) {
  if (typeof bytes !== "number") return "–";
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const text = unit === 0 || value >= 100 || Number.isInteger(value) ? WHOLE.format(value) : TENTH.format(value);
  return `${text} ${UNITS[unit]}`;
}

export function span(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds < 10) return `${TENTH.format(seconds)} s`;
  if (seconds < 120) return `${WHOLE.format(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${WHOLE.format(Math.floor(seconds % 60))} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// How long ago a moment in ISO 8601 was, by this machine's clock.
export function ago(moment) {
  if (!moment) return "–";
  return span(Math.max(0, (Date.now() - Date.parse(moment)) / 1000));
}

// A moment, in ISO 8601 or in milliseconds since the epoch, by this machine's clock and how far off it is.
export function until(moment) {
  if (!moment) return "–";
  const at = new Date(moment);
  const left = (at.getTime() - Date.now()) / 1000;
  return left > 0 ? `${CLOCK.format(at)}, in ${span(left)}` : `${CLOCK.format(at)}, now`;
}

export function percent(part, whole) {
  return whole > 0 ? Math.min(100, (part / whole) * 100) : 0;
}

// A round number at or above a value, for the top of an axis.
export function ceiling(value) {
  if (value <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
