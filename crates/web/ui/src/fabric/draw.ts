import type { FabricFault, TopologyBundle } from "../api";
import type { Colours, Token } from "../hall/colours";
import type { Box } from "../hall/use-box";
import { short } from "../names";
import type { Area, Cell, Kind, Layout, PodPlace } from "./layout";
import { endOf } from "./model";
import type { View } from "./view";

export interface Scene {
  layout: Layout;
  /** Colour of a node; empty: unknown. */
  nodeColour(name: string): string;
  /** Colours of a unit's leaves with their shares; empty: only its own. */
  shares(unit: string): [string, number][];
  faults: FabricFault[];
  /** Of switches with each other, if the fabric is small. */
  bundles: TopologyBundle[];
  /** Of the chosen switch. */
  chosen: { name: string; bundles: TopologyBundle[] } | null;
  /** Id of the chosen fault; empty: none. */
  fault: string;
}

interface Pen extends Scene {
  context: CanvasRenderingContext2D;
  view: View;
  box: Box;
  colours: Colours;
}

const KIND_COLOURS: Record<Kind, Token> = { top: "switch-core", spine: "switch-spine", leaf: "switch-leaf", node: "raised" };

function areaOn({ view }: Pen, { x, y, w, h }: Area): Area {
  return { x: view.x + x * view.scale, y: view.y + y * view.scale, w: w * view.scale, h: h * view.scale };
}

function isSeen({ box }: Pen, { x, y, w, h }: Area): boolean {
  return x < box.width && y < box.height && x + w > 0 && y + h > 0;
}

export function drawFabric(context: CanvasRenderingContext2D, scene: Scene, view: View, box: Box, colours: Colours): void {
  const pen: Pen = { ...scene, context, view, box, colours };
  for (const pod of scene.layout.pods) {
    drawPod(pen, pod);
  }
  if (scene.bundles.length > 0) {
    drawBundles(pen, scene.bundles, colours.of["text-dim"], 0.3);
  } else {
    scene.layout.pods.forEach((pod) => drawTrunks(pen, pod));
  }
  for (const cell of scene.layout.cells) {
    drawCell(pen, cell);
  }
  if (scene.chosen !== null) {
    drawBundles(pen, scene.chosen.bundles, colours.of["accent-strong"], 0.85);
    mark(pen, scene.layout.byName.get(scene.chosen.name));
  }
  scene.faults.forEach((fault) => drawFault(pen, fault));
  drawTitles(pen);
}

function drawPod(pen: Pen, { pod, area }: PodPlace): void {
  const { context, colours } = pen;
  const on = areaOn(pen, area);
  if (pod.title === "" || !isSeen(pen, on)) {
    return;
  }
  context.fillStyle = colours.of.sunken;
  context.strokeStyle = colours.of.line;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(on.x, on.y, on.w, on.h, Math.min(6, pen.view.scale));
  context.fill();
  context.stroke();
}

/** The cables between two levels together: between the widths of both. */
function fan(pen: Pen, low: Area, high: Area): void {
  const { context } = pen;
  const [a, b] = [areaOn(pen, low), areaOn(pen, high)];
  const top = b.y + b.h;
  const middle = (a.y + top) / 2;
  context.beginPath();
  context.moveTo(a.x, a.y);
  context.bezierCurveTo(a.x, middle, b.x, middle, b.x, top);
  context.lineTo(b.x + b.w, top);
  context.bezierCurveTo(b.x + b.w, middle, a.x + a.w, middle, a.x + a.w, a.y);
  context.closePath();
  context.fill();
}

function drawTrunks(pen: Pen, { spines, units, area }: PodPlace): void {
  const { context, layout, colours } = pen;
  context.fillStyle = colours.of.accent;
  // Many areas above each other must not add up to a bright one.
  context.globalAlpha = 0.13 / Math.max(1, units.filter(({ isFirst }) => isFirst).length / 6);
  const upper = spines ?? layout.tops;
  for (const unit of units) {
    if (upper !== null && unit.isFirst) {
      fan(pen, unit.row, upper);
    } else if (upper !== null) {
      const from = areaOn(pen, { x: unit.area.x - 0.75, y: upper.y + upper.h, w: 0.3, h: unit.row.y - upper.y - upper.h + 0.5 });
      context.fillRect(from.x, from.y, from.w, from.h);
      const into = areaOn(pen, { x: unit.area.x - 0.75, y: unit.row.y + 0.3, w: 0.75, h: 0.3 });
      context.fillRect(into.x, into.y, into.w, into.h);
    }
  }
  if (spines !== null && layout.tops !== null) {
    context.globalAlpha = 0.08;
    fan(pen, spines, upperPart(layout.tops, area, layout));
  }
  context.globalAlpha = 1;
}

/** Where the cables of a pod go: to all cores if the pods are in one line, else up. */
function upperPart(tops: Area, area: Area, { pods }: Layout): Area {
  if (pods.every((pod) => pod.area.y === area.y)) {
    return tops;
  }
  const isFirstLine = pods[0]?.area.y === area.y;
  const middle = area.x + area.w / 2;
  return isFirstLine ? { x: middle - area.w / 4, y: tops.y, w: area.w / 2, h: tops.h } : { x: middle - 1, y: area.y - 2, w: 2, h: 0.6 };
}

function middle(pen: Pen, cell: Cell): { x: number; y: number } {
  const on = areaOn(pen, cell);
  return { x: on.x + on.w / 2, y: on.y + on.h / 2 };
}

/** A line from the upper end to the lower one. */
function cable(pen: Pen, a: Cell, b: Cell): void {
  const [high, low] = a.y <= b.y ? [a, b] : [b, a];
  const [from, to] = [areaOn(pen, high), areaOn(pen, low)];
  const [x1, y1] = [from.x + from.w / 2, from.y + from.h];
  const [x2, y2] = [to.x + to.w / 2, to.y];
  const bend = (y1 + y2) / 2;
  pen.context.moveTo(x1, y1);
  pen.context.bezierCurveTo(x1, bend, x2, bend, x2, y2);
}

function drawBundles(pen: Pen, bundles: TopologyBundle[], stroke: string, alpha: number): void {
  const { context, layout } = pen;
  context.strokeStyle = stroke;
  context.globalAlpha = alpha;
  const wide = new Map<number, [Cell, Cell][]>();
  for (const { a = "", b = "", cables = 1 } of bundles) {
    const [from, to] = [layout.byName.get(a), layout.byName.get(short("nodes", b))];
    if (from && to) {
      const width = Math.min(3, 0.6 + Math.log2(cables) * 0.5);
      wide.set(width, [...(wide.get(width) ?? []), [from, to]]);
    }
  }
  for (const [width, pairs] of wide) {
    context.lineWidth = width;
    context.beginPath();
    pairs.forEach(([from, to]) => cable(pen, from, to));
    context.stroke();
  }
  context.globalAlpha = 1;
}

function drawCell(pen: Pen, cell: Cell): void {
  const on = areaOn(pen, cell);
  if (!isSeen(pen, on)) {
    return;
  }
  const { context, colours, view } = pen;
  const own = cell.kind === "node" ? (cell.name === "" ? "" : pen.nodeColour(cell.name)) : colours.of[KIND_COLOURS[cell.kind]];
  const isLarge = view.scale > 9;
  context.fillStyle = own || colours.of.raised;
  if (isLarge) {
    context.beginPath();
    context.roundRect(on.x, on.y, on.w, on.h, 2.5);
    context.fill();
  } else {
    context.fillRect(on.x, on.y, Math.max(0.8, on.w), Math.max(0.8, on.h));
  }
  if (cell.kind === "leaf" && cell.unit !== undefined) {
    drawShares(pen, cell.unit, on);
  }
  if (own === "" && isLarge) {
    context.strokeStyle = colours.of["line-strong"];
    context.lineWidth = 1;
    context.strokeRect(on.x + 0.5, on.y + 0.5, on.w - 1, on.h - 1);
  }
  if (isLarge) {
    drawName(pen, cell, on, own);
  }
}

/** Who uses the leaf: a stripe at its foot for each cluster, as wide as its share of the nodes. */
function drawShares(pen: Pen, unit: string, on: Area): void {
  const { context } = pen;
  let x = on.x;
  const high = on.h * 0.42;
  for (const [colour, share] of pen.shares(unit)) {
    if (colour !== "") {
      context.fillStyle = colour;
      context.fillRect(x, on.y + on.h - high, on.w * share, high);
    }
    x += on.w * share;
  }
}

function drawName(pen: Pen, cell: Cell, on: Area, own: string): void {
  const { context, colours } = pen;
  const rail = cell.of?.rail;
  const isNamed = on.w > 8 + cell.name.length * 5.6;
  const text = isNamed ? cell.name : cell.kind === "leaf" && rail !== undefined && on.w > 15 ? String(rail) : "";
  if (text === "") {
    return;
  }
  const size = Math.min(11.5, on.h * 0.5, isNamed ? 12 : 10);
  if (size < 6) {
    return;
  }
  context.font = `${size}px ${isNamed ? colours.mono : colours.sans}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const isPlain = own === "" || own === colours.of["line-strong"];
  context.fillStyle = cell.kind !== "node" ? "#fff" : isPlain ? colours.of.text : colours.of.ground;
  context.fillText(text, on.x + on.w / 2, on.y + on.h * (cell.kind === "leaf" ? 0.33 : 0.52), on.w - 4);
}

function mark(pen: Pen, cell: Cell | undefined): void {
  if (cell === undefined) {
    return;
  }
  const on = areaOn(pen, cell);
  pen.context.strokeStyle = pen.colours.of.text;
  pen.context.lineWidth = 2;
  pen.context.strokeRect(on.x - 1.5, on.y - 1.5, on.w + 3, on.h + 3);
}

function drawFault(pen: Pen, fault: FabricFault): void {
  const { context, layout, colours } = pen;
  const isChosen = fault.id === pen.fault;
  context.strokeStyle = colours.of.bad;
  context.fillStyle = colours.of.bad;
  context.lineWidth = isChosen ? 3.5 : 1.75;
  for (const { a, b } of fault.ends ?? []) {
    const cells = [endOf(a).name, endOf(b).name].map((name) => layout.byName.get(name)).filter((cell) => cell !== undefined);
    // A node may be in several fabrics: the switch shows which fabric has the fault.
    if (!cells.some(({ of }) => of !== undefined)) {
      continue;
    }
    const [from, to] = cells;
    if (from && to) {
      context.beginPath();
      cable(pen, from, to);
      context.stroke();
    }
    for (const cell of cells) {
      const at = middle(pen, cell);
      context.beginPath();
      context.arc(at.x, at.y, Math.max(3, Math.min(5, pen.view.scale * 0.3)) + (isChosen ? 2 : 0), 0, 7);
      context.fill();
    }
  }
}

function drawTitles(pen: Pen): void {
  const { context, layout, colours } = pen;
  context.textBaseline = "middle";
  context.fillStyle = colours.of["text-dim"];
  for (const { pod, area, units } of layout.pods) {
    const on = areaOn(pen, area);
    if (on.w > 34 && pod.title !== "" && isSeen(pen, on)) {
      context.font = `600 ${Math.min(12, Math.max(8.5, pen.view.scale * 1.6))}px ${colours.sans}`;
      context.textAlign = "left";
      context.fillText(on.w > 52 ? pod.title : pod.title.replace("pod ", ""), on.x + 4, on.y + Math.max(6, pen.view.scale * 1.15), on.w - 6);
    }
    for (const { unit, area: place } of units) {
      const at = areaOn(pen, place);
      if (at.w > 44 && isSeen(pen, at)) {
        context.font = `11px ${colours.sans}`;
        context.textAlign = "center";
        context.fillText(unit.title, at.x + at.w / 2, at.y + at.h - 1.6 * pen.view.scale + Math.min(12, pen.view.scale * 0.9), at.w + 4);
      }
    }
  }
  if (layout.tops !== null) {
    const on = areaOn(pen, layout.tops);
    context.font = `600 ${Math.min(12, Math.max(8.5, pen.view.scale * 1.6))}px ${colours.sans}`;
    context.textAlign = "left";
    context.fillText(topsTitle(layout), Math.max(6, on.x), Math.max(6, on.y - Math.min(9, pen.view.scale * 1.2)));
  }
}

function topsTitle({ cells }: Layout): string {
  const tops = cells.filter(({ kind }) => kind === "top");
  const cores = tops.filter(({ of }) => of?.level === "core").length;
  const rest = tops.length - cores;
  const of = (count: number, word: string) => (count === 0 ? "" : `${count} ${word}${count === 1 ? "" : "s"}`);
  return [of(cores, "core"), of(rest, "spine")].filter(Boolean).join(", ");
}
