import type { Operation } from "../api";
import { bytes } from "../units";

/** A bar with its figure. */
export function Bar({ percent, label }: { percent: number; label: string }) {
  const whole = Math.min(100, Math.max(0, Math.round(percent)));
  return (
    <span class="bar">
      <progress max={100} value={whole} aria-label={label} />
      <span class="bar-figure">{whole}%</span>
    </span>
  );
}

/** The step, and the bytes of it, as the CLI. */
export function progressText({ progress }: Operation): string {
  if (progress === undefined) {
    return "";
  }
  const parts = [progress.step ?? ""];
  if (Number(progress.logicalBytesTotal ?? 0) > 0) {
    parts.push(`${bytes(progress.logicalBytes ?? "0")} of ${bytes(progress.logicalBytesTotal)}`);
  }
  if (Number(progress.bytesPerSecond ?? 0) > 0) {
    parts.push(`${bytes(progress.bytesPerSecond)}/s`);
  }
  return parts.filter(Boolean).join(", ");
}
