const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function scaled(count: number, step: number, units: string[]): string {
  let value = count;
  let unit = 0;
  while (value >= step - 0.05 && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  return unit === 0 ? `${count} B` : `${value.toFixed(1)} ${units[unit]}`;
}

/** Decimal units, as drives and networks are sold: `4.2 MB`. */
export function bytes(count: string | undefined): string {
  return count === undefined ? "unknown" : scaled(Number(count), 1_000, UNITS);
}

/** Binary units, as memory is sold: `64.0 GiB`. */
export function memory(count: string | undefined): string {
  return count === undefined ? "unknown" : scaled(Number(count), 1_024, BINARY);
}

const THIN = new Intl.NumberFormat("en-US");

/** `12,345` */
export function count(value: number): string {
  return THIN.format(value);
}

export function plural(value: number, word: string): string {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}
