import type { Row } from "./row";

/** Groups above this number get no titles: a gap divides them, and the tip names them. */
const MOST_TITLES = 40;
const TITLE = 20;
const GAP = 10;
const SMALLEST = 1.5;
const LARGEST = 22;

export interface Block {
  title: string;
  /** Of the title, in CSS pixels. */
  y: number;
  rows: Row[];
}

/** Where each cell is: all figures in CSS pixels. */
export interface Layout {
  /** From one cell to the next. */
  pitch: number;
  columns: number;
  height: number;
  blocks: Block[];
  /** Cells in drawing order: the row, its column and its top. */
  cells: { row: Row; x: number; y: number; group: string }[];
}

function grouped(rows: Row[], groupOf: ((row: Row) => string) | null): [string, Row[]][] {
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
export function layOut(rows: Row[], groupOf: ((row: Row) => string) | null, width: number, height: number): Layout {
  const groups = grouped(rows, groupOf);
  const hasTitles = groupOf !== null && groups.length <= MOST_TITLES;
  const lost = hasTitles ? groups.length * (TITLE + GAP) : 0;
  const gaps = hasTitles || groupOf === null ? 0 : groups.length;
  const area = Math.max(width * 40, width * (height - lost));
  let pitch = Math.min(LARGEST, Math.max(SMALLEST, Math.sqrt(area / Math.max(1, rows.length + gaps))));
  pitch = pitch > 4 ? Math.floor(pitch) : Math.floor(pitch * 2) / 2;
  const columns = Math.max(1, Math.floor(width / pitch));
  return hasTitles ? titled(groups, pitch, columns) : flowing(groups, pitch, columns, groupOf !== null);
}

function titled(groups: [string, Row[]][], pitch: number, columns: number): Layout {
  const cells: Layout["cells"] = [];
  const blocks: Block[] = [];
  let y = 0;
  for (const [title, rows] of groups) {
    blocks.push({ title, y, rows });
    y += TITLE;
    rows.forEach((row, index) => {
      cells.push({ row, x: (index % columns) * pitch, y: y + Math.floor(index / columns) * pitch, group: title });
    });
    y += Math.ceil(rows.length / columns) * pitch + GAP;
  }
  return { pitch, columns, height: Math.max(pitch, y - GAP), blocks, cells };
}

function flowing(groups: [string, Row[]][], pitch: number, columns: number, hasGaps: boolean): Layout {
  const cells: Layout["cells"] = [];
  let at = 0;
  for (const [group, rows] of groups) {
    for (const row of rows) {
      cells.push({ row, x: (at % columns) * pitch, y: Math.floor(at / columns) * pitch, group });
      at += 1;
    }
    at += hasGaps ? 1 : 0;
  }
  return { pitch, columns, height: Math.ceil(at / columns) * pitch, blocks: [], cells };
}

/** The index of the cell at a point; -1: none. */
export function cellAt(layout: Layout, x: number, y: number): number {
  const { cells, pitch } = layout;
  // The cells are in rising order of their tops, and of their columns within a line.
  let low = 0;
  let high = cells.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const cell = cells[middle];
    if (cell === undefined) {
      return -1;
    }
    if (y < cell.y || (y < cell.y + pitch && x < cell.x)) {
      high = middle - 1;
    } else if (y >= cell.y + pitch || x >= cell.x + pitch) {
      low = middle + 1;
    } else {
      return middle;
    }
  }
  return -1;
}
