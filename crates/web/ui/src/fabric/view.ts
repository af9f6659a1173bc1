import type { Box } from "../hall/use-box";
import type { Area, Layout } from "./layout";

/** Pixels for a cell, and where the picture begins. */
export interface View {
  scale: number;
  x: number;
  y: number;
}

const LARGEST = 130;
/** Of a small fabric that would fit larger. */
const LARGEST_FIT = 72;
const KEEP = 60;

export function fit({ size }: Layout, box: Box): View {
  const scale = Math.min(box.width / size.w, box.height / size.h, LARGEST_FIT);
  return { scale, x: (box.width - size.w * scale) / 2, y: Math.max(0, (box.height - size.h * scale) / 2) };
}

/** Keeps a part of the picture in the box. */
function kept(view: View, { size }: Layout, box: Box): View {
  const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, low), high);
  return {
    scale: view.scale,
    x: clamp(view.x, KEEP - size.w * view.scale, box.width - KEEP),
    y: clamp(view.y, KEEP - size.h * view.scale, box.height - KEEP),
  };
}

export function panned(view: View, dx: number, dy: number, layout: Layout, box: Box): View {
  return kept({ ...view, x: view.x + dx, y: view.y + dy }, layout, box);
}

/** Larger or smaller, with the point of the box in its place. */
export function zoomed(view: View, factor: number, px: number, py: number, layout: Layout, box: Box): View {
  const least = fit(layout, box).scale;
  const scale = Math.min(LARGEST, Math.max(least, view.scale * factor));
  if (scale === least) {
    return fit(layout, box);
  }
  const ratio = scale / view.scale;
  return kept({ scale, x: px - (px - view.x) * ratio, y: py - (py - view.y) * ratio }, layout, box);
}

/** Shows an area as large as possible. */
export function around(area: Area, layout: Layout, box: Box): View {
  const scale = Math.min(box.width / (area.w + 3), box.height / (area.h + 3), 60);
  const view = { scale: Math.max(scale, fit(layout, box).scale), x: 0, y: 0 };
  view.x = box.width / 2 - (area.x + area.w / 2) * view.scale;
  view.y = box.height / 2 - (area.y + area.h / 2) * view.scale;
  return kept(view, layout, box);
}
