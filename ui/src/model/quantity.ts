// Kubernetes quantities and times, as people read them.
import { language } from "../messages.ts";

const UNITS: Record<string, number> = {
  "": 1,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
};

/** A quantity as a number; NaN if it is none. */
export function parseQuantity(text: string | number | undefined | null): number {
  if (typeof text === "number") return text;
  const found = /^\s*([0-9.]+(?:e[0-9]+)?)\s*([A-Za-z]*)\s*$/.exec(text ?? "");
  if (!found || !(found[2] in UNITS)) return Number.NaN;
  return Number(found[1]) * UNITS[found[2]];
}

/** Bytes in the largest unit that leaves a number of one or more. */
export function formatBytes(bytes: number | undefined): string {
  if (bytes === undefined || !Number.isFinite(bytes)) return "–";
  for (const unit of ["Ti", "Gi", "Mi", "Ki"]) {
    const value = bytes / UNITS[unit];
    if (value >= 1) return `${value >= 100 ? Math.round(value) : Number(value.toFixed(1))} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

const STEPS: [number, Intl.RelativeTimeFormatUnit][] = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [30, "day"],
  [12, "month"],
  [Number.POSITIVE_INFINITY, "year"],
];

/** How long ago something was, in one number: `3h`, `12d`. */
export function age(time: string | undefined, now = Date.now()): string {
  if (!time) return "–";
  let value = Math.max(0, (now - Date.parse(time)) / 1000);
  for (const [size, unit] of STEPS) {
    if (value < size) return `${Math.floor(value)}${unit === "month" ? "mo" : unit[0]}`;
    value /= size;
  }
  return "–";
}

/** Making one takes much longer than using it. */
let format: { of: string; time: Intl.DateTimeFormat } | undefined;

export function exactTime(time: string | undefined): string {
  if (!time) return "";
  const of = language.value;
  if (format?.of !== of) format = { of, time: new Intl.DateTimeFormat(of, { dateStyle: "medium", timeStyle: "medium" }) };
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : format.time.format(date);
}
