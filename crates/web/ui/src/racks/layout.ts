import type { Machine, Rack } from "./model";

export type Size = "small" | "medium" | "large";

export const SIZES: Size[] = ["small", "medium", "large"];

interface Measure {
  /** Of the rack without its sides. */
  width: number;
  unit: number;
  /** For PDUs at each side. */
  side: number;
  gap: number;
  /** Below the rack, for its name. */
  foot: number;
}

const MEASURES: Record<Size, Measure> = {
  small: { width: 26, unit: 1.5, side: 4, gap: 9, foot: 20 },
  medium: { width: 60, unit: 3.5, side: 7, gap: 14, foot: 34 },
  large: { width: 152, unit: 10, side: 16, gap: 22, foot: 42 },
};

const TITLE = 30;
const TOP = 10;

export interface Line {
  y: number;
  height: number;
  /** The first rack, and the one after the last. */
  first: number;
  end: number;
}

export interface Layout {
  racks: Rack[];
  measure: Measure;
  size: Size;
  columns: number;
  pitch: number;
  lines: Line[];
  titles: { text: string; y: number; count: number }[];
  height: number;
}

/** The size at which the racks fill about one screen. */
export function usualSize(count: number, width: number): Size {
  if (width < 500) {
    return count <= 2 ? "large" : count <= 24 ? "medium" : "small";
  }
  return count <= 8 ? "large" : count <= 90 ? "medium" : "small";
}

function pitchOf({ width, side, gap }: Measure): number {
  return width + 2 * side + gap;
}

/** Racks side by side, room after room. */
export function layOut(racks: Rack[], size: Size, width: number): Layout {
  const measure = MEASURES[size];
  const least = pitchOf(measure);
  const columns = Math.max(1, Math.floor((width - measure.gap) / least));
  // A full line takes the whole width.
  const pitch = racks.length > columns ? Math.floor((width - measure.gap) / columns) : least;
  const layout: Layout = { racks, measure, size, columns, pitch, lines: [], titles: [], height: 0 };
  let y = TOP;
  let at = 0;
  const hasTitles = racks.some(({ room }) => room !== racks[0]?.room);
  while (at < racks.length) {
    const room = racks[at]?.room;
    let end = at;
    while (end < racks.length && racks[end]?.room === room) {
      end += 1;
    }
    if (hasTitles) {
      layout.titles.push({ text: room ?? "", y, count: end - at });
      y += TITLE;
    }
    for (let first = at; first < end; first += columns) {
      const last = Math.min(end, first + columns);
      const tallest = racks.slice(first, last).reduce((most, rack) => Math.max(most, rack.units), 1);
      layout.lines.push({ y, height: tallest * measure.unit, first, end: last });
      y += tallest * measure.unit + measure.foot;
    }
    at = end;
  }
  layout.height = y + 4;
  return layout;
}

/** The left side of a rack's frame, and its top. */
export function frameOf({ racks, measure, pitch }: Layout, line: Line, index: number): { x: number; y: number; height: number } {
  const height = (racks[index]?.units ?? 1) * measure.unit;
  return { x: measure.gap + measure.side + (index - line.first) * pitch, y: line.y + line.height - height, height };
}

/** The lines between two heights. */
export function linesBetween({ lines, measure }: Layout, top: number, bottom: number): Line[] {
  return lines.filter(({ y, height }) => y + height + measure.foot >= top && y <= bottom);
}

export function lineOf({ lines }: Layout, rack: number): Line | undefined {
  return lines.find(({ first, end }) => rack >= first && rack < end);
}

export interface Spot {
  rack: number;
  /** -1: the rack itself. */
  machine: number;
  /** -1: none. */
  pdu: number;
}

export const NOWHERE: Spot = { rack: -1, machine: -1, pdu: -1 };

/** The PDUs of a rack at its left and at its right, by their places in the rack's list. */
export function sidesOf({ pdus }: Rack): [number[], number[]] {
  const all = pdus.map((_, index) => index);
  return [all.filter((index) => index % 2 === 0), all.filter((index) => index % 2 === 1)];
}

/** What is at a point of the picture. */
export function spotAt(layout: Layout, x: number, y: number): Spot {
  const { measure, pitch } = layout;
  const line = layout.lines.find((some) => y >= some.y && y <= some.y + some.height + measure.foot);
  if (line === undefined) {
    return NOWHERE;
  }
  const column = Math.floor((x - measure.gap / 2) / pitch);
  const index = line.first + column;
  const rack = layout.racks[index];
  if (column < 0 || index >= line.end || rack === undefined) {
    return NOWHERE;
  }
  const frame = frameOf(layout, line, index);
  const inX = x - frame.x;
  const unit = (frame.y + frame.height - y) / measure.unit + 1;
  if (inX < 0 || inX > measure.width) {
    const side = sidesOf(rack)[inX < 0 ? 0 : 1];
    const part = inX < 0 ? (inX + measure.side) / measure.side : (inX - measure.width) / measure.side;
    const pdu = part >= 0 && part < 1 && unit >= 1 ? (side[Math.floor(part * side.length)] ?? -1) : -1;
    return { rack: index, machine: -1, pdu };
  }
  const machine = rack.machines.findIndex((some) => some.unit > 0 && unit >= some.unit && unit < some.unit + some.height);
  return { rack: index, machine: machine >= 0 ? machine : unplacedAt(layout, rack, inX, y - frame.y - frame.height), pdu: -1 };
}

const CHIP = 9;

/** Machines without a rack unit are small squares below the rack. */
export function unplaced(rack: Rack): number[] {
  return rack.machines.flatMap(({ unit }, index) => (unit === 0 ? [index] : []));
}

export function chipAt({ measure }: Layout, order: number): { x: number; y: number; size: number } {
  const inLine = Math.max(1, Math.floor(measure.width / CHIP));
  return { x: (order % inLine) * CHIP, y: 3 + Math.floor(order / inLine) * CHIP, size: CHIP - 2 };
}

function unplacedAt(layout: Layout, rack: Rack, x: number, y: number): number {
  const order = unplaced(rack).findIndex((_, index) => {
    const chip = chipAt(layout, index);
    return x >= chip.x && x < chip.x + CHIP && y >= chip.y && y < chip.y + CHIP;
  });
  return order < 0 ? -1 : (unplaced(rack)[order] ?? -1);
}

/** The machine beside or above another one; keys move with it. */
export function moved(layout: Layout, from: Spot, key: string): Spot {
  const { racks, columns } = layout;
  if (from.rack < 0) {
    return racks.length > 0 ? { rack: 0, machine: (racks[0]?.machines.length ?? 0) - 1, pdu: -1 } : NOWHERE;
  }
  const rack = racks[from.rack];
  const count = rack?.machines.length ?? 0;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const next = from.machine + (key === "ArrowUp" ? 1 : -1);
    if (next >= 0 && next < count) {
      return { ...from, machine: next, pdu: -1 };
    }
    const other = from.rack + (key === "ArrowUp" ? -columns : columns);
    const there = racks[other]?.machines.length;
    return there === undefined ? from : { rack: other, machine: key === "ArrowUp" ? 0 : there - 1, pdu: -1 };
  }
  const other = racks[from.rack + (key === "ArrowRight" ? 1 : -1)];
  if (other === undefined) {
    return from;
  }
  const unit = rack?.machines[from.machine]?.unit ?? 1;
  return { rack: from.rack + (key === "ArrowRight" ? 1 : -1), machine: nearest(other.machines, unit), pdu: -1 };
}

function nearest(machines: Machine[], unit: number): number {
  let best = -1;
  machines.forEach((machine, index) => {
    const before = machines[best];
    if (before === undefined || Math.abs(machine.unit - unit) < Math.abs(before.unit - unit)) {
      best = index;
    }
  });
  return best;
}
