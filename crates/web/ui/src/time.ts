import { signal } from "@preact/signals";

/** The time, each second. */
export const everySecond = signal(Date.now());
/** The time, each half minute: for ages that show minutes or more. */
export const everyHalfMinute = signal(Date.now());

export function startClock(): void {
  window.setInterval(() => {
    if (!document.hidden) {
      const now = Date.now();
      everySecond.value = now;
      if (now - everyHalfMinute.value >= 30_000) {
        everyHalfMinute.value = now;
      }
    }
  }, 1_000);
}

/** `12s`, `3m`, `5h`, `2d`, as the CLI. */
export function age(seconds: number): string {
  const whole = Math.floor(Math.max(0, seconds));
  if (whole < 120) {
    return `${whole}s`;
  }
  if (whole < 7_200) {
    return `${Math.floor(whole / 60)}m`;
  }
  return whole < 172_800 ? `${Math.floor(whole / 3_600)}h` : `${Math.floor(whole / 86_400)}d`;
}

/** `12.3 s`, `1m 23s`, `2h 05m`, `3d 04h`, as the CLI. */
export function duration(seconds: number): string {
  const some = Math.max(0, seconds);
  if (some < 59.95) {
    return `${some.toFixed(1)} s`;
  }
  const whole = Math.round(some);
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
  if (whole < 3_600) {
    return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  }
  if (whole < 86_400) {
    return `${Math.floor(whole / 3_600)}h ${two((whole % 3_600) / 60)}m`;
  }
  return `${Math.floor(whole / 86_400)}d ${two((whole % 86_400) / 3_600)}h`;
}

/** The seconds of a protobuf duration in JSON: "90s", "1.5s". */
export function protoSeconds(text: string | undefined): number {
  return Number.parseFloat(text ?? "0") || 0;
}

export function millis(time: string | undefined): number {
  return time === undefined ? Number.NaN : Date.parse(time);
}

export function secondsBetween(start: string | undefined, end: string | undefined): number | null {
  const between = (millis(end) - millis(start)) / 1_000;
  return Number.isNaN(between) ? null : between;
}

/** `2026-01-02T03:04:05Z`, as the CLI. */
export function stamp(time: string | undefined): string {
  const at = millis(time);
  return Number.isNaN(at) ? "unknown" : `${new Date(at).toISOString().slice(0, 19)}Z`;
}
