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

const images = new WeakMap<HTMLCanvasElement, ImageData>();

function imageOf(canvas: HTMLCanvasElement, context: CanvasRenderingContext2D, wide: number, high: number): ImageData {
  const known = images.get(canvas);
  if (known?.width === wide && known.height === high) {
    known.data.fill(0);
    return known;
  }
  canvas.width = wide;
  canvas.height = high;
  const image = context.createImageData(wide, high);
  images.set(canvas, image);
  return image;
}

/** Draws every cell at once. Single rectangles would take ten times as long for 100,000 nodes. */
export function draw(canvas: HTMLCanvasElement, layout: Layout, width: number, colours: Palette): void {
  const context = canvas.getContext("2d");
  if (context === null) {
    return;
  }
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(layout.height * ratio));
  const image = imageOf(canvas, context, wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const gap = layout.pitch >= 12 ? 2 : layout.pitch >= 5 ? 1 : 0;
  const { rows, xs, ys, pitch } = layout;
  for (let index = 0; index < rows.length; index += 1) {
    const value = colours.get(rows[index]?.state ?? "unknown") ?? 0;
    const [x, y] = [xs[index] ?? 0, ys[index] ?? 0];
    const left = Math.round(x * ratio);
    const right = Math.min(Math.max(left + 1, Math.round((x + pitch - gap) * ratio)), wide);
    const bottom = Math.min(Math.round((y + pitch - gap) * ratio), high);
    for (let line = Math.round(y * ratio); line < bottom; line += 1) {
      for (let at = line * wide + left; at < line * wide + right; at += 1) {
        pixels[at] = value;
      }
    }
  }
  context.putImageData(image, 0, 0);
}
