import type { TopologySwitch } from "../api";
import type { Box } from "../hall/use-box";
import type { Fabric, Pod, Unit } from "./model";

export type Kind = "top" | "spine" | "leaf" | "node";

/** Places are in cells: the side of a node. */
export interface Cell {
  kind: Kind;
  /** Empty: the name of the node is not read yet. */
  name: string;
  x: number;
  y: number;
  w: number;
  h: number;
  of?: TopologySwitch;
  unit?: string;
}

export interface Area {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface UnitPlace {
  unit: Unit;
  area: Area;
  /** The leaves. */
  row: Area;
  /** False: other units are between it and the spines. */
  isFirst: boolean;
}

export interface PodPlace {
  pod: Pod;
  area: Area;
  /** Absent: no spines. */
  spines: Area | null;
  units: UnitPlace[];
}

export interface Layout {
  cells: Cell[];
  byName: Map<string, Cell>;
  pods: PodPlace[];
  tops: Area | null;
  size: { w: number; h: number };
}

const COLUMNS = 8;
const UNIT_GAP = 1.2;
const POD_GAP = 2.4;
const PAD = 0.8;
const TITLE = 1.6;
const LEAF = 1.3;
const SWITCH = 1.3;
/** A tree in one line is drawn if a cell has this many pixels. */
const CLEAR = 8;
const MOST_GAP = 18;

export interface Plan {
  unitsInLine: number;
  podsInLine: number;
  /** Between two levels. */
  gap: number;
}

type Members = ReadonlyMap<string, string[]>;

function columnsOf({ leaves, size }: Unit): number {
  return Math.max(Math.min(COLUMNS, size), leaves.length, 2);
}

function unitSize(unit: Unit, members: Members): { w: number; h: number } {
  const nodes = members.get(unit.key)?.length ?? unit.size;
  const w = columnsOf(unit);
  return { w, h: LEAF + 0.5 + Math.ceil(nodes / w) + TITLE };
}

/** Where things are. A draft has no cells: it only tells how large a plan is. */
class Builder {
  readonly layout: Layout = { cells: [], byName: new Map(), pods: [], tops: null, size: { w: 0, h: 0 } };

  constructor(
    private readonly fabric: Fabric,
    private readonly members: Members,
    private readonly plan: Plan,
    private readonly isDraft = false,
  ) {}

  build(): Layout {
    const { pods, tops } = this.fabric;
    const sizes = pods.map((pod) => this.podSize(pod));
    const { podsInLine, gap } = this.plan;
    const lines: { first: number; w: number; h: number }[] = [];
    for (let first = 0; first < pods.length; first += podsInLine) {
      const some = sizes.slice(first, first + podsInLine);
      lines.push({ first, w: some.reduce((sum, { w }) => sum + w + POD_GAP, -POD_GAP), h: Math.max(...some.map(({ h }) => h)) });
    }
    const width = Math.max(COLUMNS, ...lines.map(({ w }) => w)) + 2 * PAD;
    let y = PAD;
    if (tops.length > 0) {
      y += TITLE;
      const area = this.band(tops, "top", PAD, y, width - 2 * PAD);
      this.layout.tops = area;
      y += area.h + gap;
    }
    for (const line of lines) {
      let x = (width - line.w) / 2;
      for (let index = line.first; index < Math.min(pods.length, line.first + podsInLine); index += 1) {
        this.placePod(pods[index] as Pod, x, y);
        x += (sizes[index]?.w ?? 0) + POD_GAP;
      }
      y += line.h + POD_GAP;
    }
    this.layout.size = { w: width, h: y - POD_GAP + PAD };
    return this.layout;
  }

  private podSize(pod: Pod): { w: number; h: number } {
    const { unitsInLine, gap } = this.plan;
    let [w, h] = [0, 0];
    for (let first = 0; first < pod.units.length; first += unitsInLine) {
      const some = pod.units.slice(first, first + unitsInLine).map((unit) => unitSize(unit, this.members));
      w = Math.max(w, some.reduce((sum, size) => sum + size.w + UNIT_GAP, -UNIT_GAP));
      h += Math.max(...some.map((size) => size.h)) + (first > 0 ? UNIT_GAP : 0);
    }
    const inner = w;
    const head = pod.title === "" ? 0 : TITLE;
    const spines = pod.spines.length === 0 ? 0 : this.bandHeight(pod.spines.length, inner) + gap;
    return { w: inner + 2 * PAD, h: head + spines + h + 2 * PAD };
  }

  private perLine(width: number): number {
    return Math.max(1, Math.floor(width / SWITCH));
  }

  private bandHeight(count: number, width: number): number {
    return Math.ceil(count / this.perLine(width)) * SWITCH;
  }

  /** Switches side by side, in as few lines as possible. */
  private band(switches: TopologySwitch[], kind: Kind, x: number, y: number, width: number): Area {
    const lines = Math.ceil(switches.length / this.perLine(width));
    const inLine = Math.ceil(switches.length / lines);
    const pitch = Math.min(width / inLine, SWITCH * 3);
    const left = x + (width - pitch * inLine) / 2;
    switches.forEach((of, index) => {
      const w = Math.min(pitch - 0.25, 3);
      this.add({ kind, name: of.name ?? "", of, x: left + (index % inLine) * pitch + (pitch - w) / 2, y: y + Math.floor(index / inLine) * SWITCH, w, h: 1 });
    });
    return { x: left, y, w: pitch * inLine, h: lines * SWITCH - 0.3 };
  }

  private placePod(pod: Pod, x: number, top: number): void {
    const size = this.podSize(pod);
    const place: PodPlace = { pod, area: { x, y: top, w: size.w, h: size.h }, spines: null, units: [] };
    let y = top + PAD + (pod.title === "" ? 0 : TITLE);
    if (pod.spines.length > 0) {
      place.spines = this.band(pod.spines, "spine", x + PAD, y, size.w - 2 * PAD);
      y += this.bandHeight(pod.spines.length, size.w - 2 * PAD) + this.plan.gap;
    }
    for (let first = 0; first < pod.units.length; first += this.plan.unitsInLine) {
      const some = pod.units.slice(first, first + this.plan.unitsInLine);
      let left = x + PAD;
      for (const unit of some) {
        place.units.push(this.placeUnit(unit, left, y, first === 0));
        left += columnsOf(unit) + UNIT_GAP;
      }
      y += Math.max(...some.map((unit) => unitSize(unit, this.members).h)) + UNIT_GAP;
    }
    this.layout.pods.push(place);
  }

  private placeUnit(unit: Unit, x: number, y: number, isFirst: boolean): UnitPlace {
    const columns = columnsOf(unit);
    const wide = columns / unit.leaves.length;
    unit.leaves.forEach((of, index) => {
      this.add({ kind: "leaf", name: of.name ?? "", of, unit: unit.key, x: x + index * wide + 0.06, y, w: wide - 0.12, h: LEAF });
    });
    const names = this.members.get(unit.key);
    const left = x + Math.max(0, columns - (names?.length ?? unit.size)) / 2;
    for (let index = 0; index < (this.isDraft ? 0 : (names?.length ?? unit.size)); index += 1) {
      this.add({ kind: "node", name: names?.[index] ?? "", unit: unit.key, x: left + (index % columns) + 0.06, y: y + LEAF + 0.5 + Math.floor(index / columns), w: 0.88, h: 0.88 });
    }
    const size = unitSize(unit, this.members);
    return { unit, area: { x, y, ...size }, row: { x, y, w: columns, h: LEAF }, isFirst };
  }

  private add(cell: Cell): void {
    if (this.isDraft) {
      return;
    }
    this.layout.cells.push(cell);
    if (cell.name !== "") {
      this.layout.byName.set(cell.name, cell);
    }
  }
}

function scaleOf({ size }: Layout, box: Box): number {
  return Math.min(box.width / size.w, box.height / size.h);
}

/** Plans that differ enough to be worth a try. */
function plans({ pods }: Fabric): Plan[] {
  const units = Math.max(1, ...pods.map((pod) => pod.units.length));
  const steps = (most: number) => [...new Set([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64].filter((step) => step < most).concat(most))];
  return steps(Math.min(units, 64)).flatMap((unitsInLine) => steps(pods.length).map((podsInLine) => ({ unitsInLine, podsInLine, gap: 3 })));
}

/** How the fabric fits the box: as a tree in one line if that is clear, else with pods and units in several lines. */
export function planOf(fabric: Fabric, box: Box): Plan {
  const most = Math.max(1, ...fabric.pods.map((pod) => pod.units.length));
  const tree = { unitsInLine: most, podsInLine: Math.max(1, fabric.pods.length), gap: 3 };
  const scaled = (plan: Plan) => {
    const draft = new Builder(fabric, new Map(), plan, true).build();
    return { plan, draft, scale: scaleOf(draft, box) };
  };
  const inLine = scaled(tree);
  if (inLine.scale >= CLEAR) {
    const levels = fabric.tops.length > 0 ? 2 : 1;
    const gap = Math.min(MOST_GAP, Math.max(3, 3 + (box.height / inLine.scale - inLine.draft.size.h) / levels));
    return { ...tree, gap };
  }
  return plans(fabric)
    .map(scaled)
    .reduce((one, other) => (other.scale > one.scale ? other : one), inLine).plan;
}

export function layOut(fabric: Fabric, members: Members, plan: Plan): Layout {
  return new Builder(fabric, members, plan).build();
}

/** The cell at a point. */
export function cellAt({ cells }: Layout, x: number, y: number): Cell | null {
  return cells.find((cell) => x >= cell.x && x <= cell.x + cell.w && y >= cell.y && y <= cell.y + cell.h) ?? null;
}

export function podAt({ pods }: Layout, x: number, y: number): PodPlace | null {
  return pods.find(({ area }) => x >= area.x && x <= area.x + area.w && y >= area.y && y <= area.y + area.h) ?? null;
}
