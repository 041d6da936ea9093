const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number, or a dash where it is not known: unknown is not 0. */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) => (value === null || value === undefined ? "–" : short.format(value));
export const rate = (value, unit = "") => (value === null || value === undefined ? "–" : `${compact(Math.round(value * 10) / 10)}${suffix(unit)}/s`);
/** What a figure ends in: Kafka 0.7 counts bytes, later versions count offsets, which need no word. */
export const suffix = (unit) => (unit === "bytes" ? " bytes" : "");
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

const two = (number) => String(number).padStart(2, "0");

/** The time of day of seconds since 1970, in the time zone of the browser. */
export function clock(seconds, withSeconds = true) {
  const at = new Date(seconds * 1000);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return withSeconds ? `${text}:${two(at.getSeconds())}` : text;
}

export function dayAndTime(seconds) {
  const at = new Date(seconds * 1000);
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock(seconds) : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(seconds)}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.round(seconds);
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}

/** `addBatch` as `add batch`. */
export const words = (name) => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

export function stateClass(state) {
  if (state === "Stable") return "good";
  if (state.endsWith("Rebalance") || ["Assigning", "Reconciling", "Unknown"].includes(state)) return "warn";
  return state === "Dead" ? "bad" : "";
}

const ARROWS = { rising: "↗", falling: "↘", steady: "→", unknown: "" };
export const arrow = (trend) => ARROWS[trend] ?? "";
