import { colour } from "../theme";
import { NODE_STATES, type NodeStateWord } from "../words";
import type { Layout } from "./layout";

/** Colours as the canvas stores them: alpha, blue, green, red. */
export type Palette = Map<NodeStateWord, number>;

export function palette(): Palette {
  const known: Palette = new Map();
  for (const state of [...NODE_STATES, "unknown"] as const) {
    const hex = Number.parseInt(colour(`--state-${state}`).slice(1), 16);
    const [red, green, blue] = [(hex >> 16) & 255, (hex >> 8) & 255, hex & 255];
    known.set(state, ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  }
  return known;
}

/** Draws every cell at once. Single rectangles would take ten times as long for 100,000 nodes. */
export function draw(canvas: HTMLCanvasElement, layout: Layout, width: number, colours: Palette): void {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(layout.height * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  if (context === null) {
    return;
  }
  const image = context.createImageData(wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const gap = layout.pitch >= 12 ? 2 : layout.pitch >= 5 ? 1 : 0;
  const size = Math.max(1, Math.round((layout.pitch - gap) * ratio));
  for (const { row, x, y } of layout.cells) {
    const value = colours.get(row.state) ?? 0;
    const left = Math.round(x * ratio);
    const right = Math.min(left + size, wide);
    const top = Math.round(y * ratio);
    const bottom = Math.min(top + size, high);
    for (let line = top; line < bottom; line += 1) {
      pixels.fill(value, line * wide + left, line * wide + right);
    }
  }
  context.putImageData(image, 0, 0);
}
