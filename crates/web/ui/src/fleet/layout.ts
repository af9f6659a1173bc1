import type { Row } from "./row";

/** Groups above this number get no titles: a gap divides them, and the tip names them. */
const MOST_TITLES = 40;
const TITLE = 20;
const GAP = 10;
const SMALLEST = 1.5;
const LARGEST = 22;

type GroupOf = (row: Row) => string;

export interface Block {
  title: string;
  /** Of the title, in CSS pixels. */
  y: number;
  size: number;
}

/** Where each cell is, in CSS pixels. Arrays of numbers, because 100,000 objects for each change would be slow. */
export interface Layout {
  /** From one cell to the next. */
  pitch: number;
  columns: number;
  height: number;
  blocks: Block[];
  rows: Row[];
  xs: Float32Array;
  ys: Float32Array;
}

function grouped(rows: Row[], groupOf: GroupOf | null): [string, Row[]][] {
  if (groupOf === null) {
    return [["", rows]];
  }
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const name = groupOf(row) || "none";
    const group = groups.get(name);
    if (group === undefined) {
      groups.set(name, [row]);
    } else {
      group.push(row);
    }
  }
  return [...groups].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

/** Lays all nodes out in an area; the cells are as large as the area allows. */
export function layOut(rows: Row[], groupOf: GroupOf | null, width: number, height: number): Layout {
  const groups = grouped(rows, groupOf);
  const hasTitles = groupOf !== null && groups.length <= MOST_TITLES;
  const lost = hasTitles ? groups.length * (TITLE + GAP) : 0;
  const gaps = hasTitles || groupOf === null ? 0 : groups.length;
  const area = Math.max(width * 40, width * (height - lost));
  let pitch = Math.min(LARGEST, Math.max(SMALLEST, Math.sqrt(area / Math.max(1, rows.length + gaps))));
  pitch = pitch > 4 ? Math.floor(pitch) : Math.floor(pitch * 2) / 2;
  const layout: Layout = {
    pitch,
    columns: Math.max(1, Math.floor(width / pitch)),
    height: 0,
    blocks: [],
    rows: [],
    xs: new Float32Array(rows.length),
    ys: new Float32Array(rows.length),
  };
  place(layout, groups, hasTitles, groupOf !== null);
  return layout;
}

function place(layout: Layout, groups: [string, Row[]][], hasTitles: boolean, hasGaps: boolean): void {
  const { pitch, columns, xs, ys } = layout;
  let top = 0;
  // The place within the block, or within all groups where they flow into each other.
  let at = 0;
  for (const [title, rows] of groups) {
    if (hasTitles) {
      layout.blocks.push({ title, y: top, size: rows.length });
      top += TITLE;
      at = 0;
    }
    for (const row of rows) {
      const index = layout.rows.push(row) - 1;
      xs[index] = (at % columns) * pitch;
      ys[index] = top + Math.floor(at / columns) * pitch;
      at += 1;
    }
    if (hasTitles) {
      top += Math.ceil(at / columns) * pitch + GAP;
    } else {
      at += hasGaps ? 1 : 0;
    }
  }
  layout.height = Math.max(pitch, hasTitles ? top - GAP : Math.ceil(at / columns) * pitch);
}

/** The index of the cell at a point; -1: none. */
export function cellAt({ rows, xs, ys, pitch }: Layout, x: number, y: number): number {
  // The cells are in rising order of their tops, and of their left sides within a line.
  let low = 0;
  let high = rows.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const left = xs[middle] ?? 0;
    const top = ys[middle] ?? 0;
    if (y < top || (y < top + pitch && x < left)) {
      high = middle - 1;
    } else if (y >= top + pitch || x >= left + pitch) {
      low = middle + 1;
    } else {
      return middle;
    }
  }
  return -1;
}
