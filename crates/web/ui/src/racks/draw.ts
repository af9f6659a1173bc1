import { feedColour, type Colours } from "../hall/colours";
import { kw, rackPower } from "../hall/pdus";
import { chipAt, frameOf, linesBetween, sidesOf, unplaced, type Layout, type Line } from "./layout";
import { lookOf, shownWatts, wordOf, type Known, type Look } from "./look";
import type { Machine, Rack } from "./model";

interface Pen {
  context: CanvasRenderingContext2D;
  layout: Layout;
  known: Known;
  colours: Colours;
}

interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Draws the part of the picture from `top` down. */
export function drawRacks(context: CanvasRenderingContext2D, layout: Layout, known: Known, colours: Colours, top: number, height: number): void {
  const pen = { context, layout, known, colours };
  context.save();
  context.translate(0, -top);
  context.textBaseline = "middle";
  for (const { text, y, count } of layout.titles) {
    if (y + 30 > top && y < top + height) {
      context.textAlign = "left";
      context.font = `600 13px ${colours.sans}`;
      context.fillStyle = colours.of.text;
      context.fillText(text, layout.measure.gap, y + 9);
      const width = context.measureText(text).width;
      context.font = `12px ${colours.sans}`;
      context.fillStyle = colours.of["text-dim"];
      context.fillText(`${count} ${count === 1 ? "rack" : "racks"}`, layout.measure.gap + width + 8, y + 9);
    }
  }
  for (const line of linesBetween(layout, top, top + height)) {
    for (let index = line.first; index < line.end; index += 1) {
      drawRack(pen, line, index);
    }
  }
  context.restore();
}

function drawRack(pen: Pen, line: Line, index: number): void {
  const { context, layout, colours } = pen;
  const rack = layout.racks[index];
  if (rack === undefined) {
    return;
  }
  const { width, unit } = layout.measure;
  const frame = { ...frameOf(layout, line, index), width };
  context.fillStyle = colours.of.sunken;
  context.strokeStyle = colours.of["line-strong"];
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(frame.x - 0.5, frame.y - 0.5, width + 1, frame.height + 1, layout.size === "small" ? 1.5 : 3);
  context.fill();
  context.stroke();
  if (layout.size === "large") {
    drawScale(pen, frame, rack);
  }
  drawPdus(pen, frame, rack);
  for (const machine of rack.machines) {
    if (machine.unit > 0) {
      const y = frame.y + frame.height - (machine.unit - 1 + machine.height) * unit;
      drawMachine(pen, rack, machine, { x: frame.x + 1, y, width: width - 2, height: machine.height * unit });
    }
  }
  unplaced(rack).forEach((at, order) => {
    const machine = rack.machines[at];
    const chip = chipAt(layout, order);
    if (machine !== undefined) {
      paint(pen, lookOf(pen.known, colours, rack, machine), { x: frame.x + chip.x, y: frame.y + frame.height + chip.y, width: chip.size, height: chip.size });
    }
  });
  drawFoot(pen, frame, rack);
}

function drawScale({ context, layout, colours }: Pen, frame: Place, rack: Rack): void {
  context.globalAlpha = 0.45;
  context.strokeStyle = colours.of.line;
  context.beginPath();
  for (let unit = 1; unit < rack.units; unit += 1) {
    const y = Math.round(frame.y + frame.height - unit * layout.measure.unit) + 0.5;
    context.moveTo(frame.x + 1, y);
    context.lineTo(frame.x + frame.width - 1, y);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function drawFoot({ context, layout, known, colours }: Pen, frame: Place, rack: Rack): void {
  const isSmall = layout.size === "small";
  const below = frame.y + frame.height + (unplaced(rack).length > 0 ? 12 : 0);
  context.textAlign = "center";
  context.fillStyle = colours.of["text-dim"];
  context.font = `${isSmall ? 9.5 : 12}px ${colours.mono}`;
  const middle = frame.x + frame.width / 2;
  context.fillText(rack.name, middle, below + (isSmall ? 8 : 11), layout.pitch - 2);
  if (!isSmall && known.by === "watts") {
    const { watts, isMeasured } = shownWatts(rackPower(rack.of, known.pdus));
    context.font = `${isMeasured ? 600 : 400} 11.5px ${colours.sans}`;
    context.fillStyle = watts === null ? colours.of["text-dim"] : colours.of.text;
    context.fillText(layout.size === "large" && watts !== null && !isMeasured ? `${kw(watts)} reserved` : kw(watts), middle, below + 26, layout.pitch - 2);
  } else if (layout.size === "large") {
    context.font = `11.5px ${colours.sans}`;
    context.fillText(rack.loop === "" ? "air" : rack.loop, middle, below + 27, layout.pitch - 2);
  }
}

/** PDUs stand at the sides, filled by their load as a share of what is permitted. */
function drawPdus(pen: Pen, frame: Place, rack: Rack): void {
  const { context, layout, known, colours } = pen;
  const { side } = layout.measure;
  sidesOf(rack).forEach((pdus, which) => {
    const wide = side / Math.max(1, pdus.length);
    pdus.forEach((index, order) => {
      const pdu = rack.pdus[index];
      const row = known.pdus?.get(pdu?.name ?? "");
      const left = which === 0 ? frame.x - side + order * wide : frame.x + frame.width + order * wide;
      const place = { x: left + (which === 0 ? 0 : 1.5), y: frame.y, width: Math.max(1.5, wide - 1.5), height: frame.height };
      context.fillStyle = colours.of.raised;
      context.fillRect(place.x, place.y, place.width, place.height);
      const permitted = row?.deratedWatts ?? 0;
      const share = permitted > 0 ? Math.min(1, (row?.measuredWatts ?? row?.reservedWatts ?? 0) / permitted) : 0;
      context.globalAlpha = row?.measuredWatts === undefined ? 0.45 : 1;
      context.fillStyle = feedColour(colours, pdu?.feed ?? "");
      context.fillRect(place.x, place.y + place.height * (1 - share), place.width, place.height * share);
      context.globalAlpha = 1;
      if (known.alarms.ofPdu.has(pdu?.name ?? "")) {
        outline(pen, place, 1.5);
      }
      if (layout.size === "large") {
        context.textAlign = "center";
        context.font = `600 10.5px ${colours.sans}`;
        context.fillStyle = colours.of.text;
        context.fillText(pdu?.feed || "?", place.x + place.width / 2, place.y + 9);
      }
    });
  });
}

function outline({ context, colours }: Pen, { x, y, width, height }: Place, thick: number): void {
  context.strokeStyle = colours.of.bad;
  context.lineWidth = thick;
  context.strokeRect(x + thick / 2, y + thick / 2, width - thick, height - thick);
}

function drawMachine(pen: Pen, rack: Rack, machine: Machine, place: Place): void {
  const { context, layout, known, colours } = pen;
  const look = lookOf(known, colours, rack, machine);
  const gap = layout.size === "large" ? 1 : place.height > 4 ? 0.75 : 0;
  const inner = { x: place.x, y: place.y + gap, width: place.width, height: place.height - 2 * gap };
  if (layout.size !== "large") {
    paint(pen, look, inner);
  } else {
    drawFront(pen, machine, look, inner);
  }
  const alarm = machine.isNode ? known.alarms.ofNode.get(machine.name) : undefined;
  if (alarm !== undefined) {
    context.setLineDash(alarm.severity === "critical" ? [] : [3, 2]);
    outline(pen, inner, layout.size === "small" ? 1.25 : 1.75);
    context.setLineDash([]);
  }
}

/** Filled, hatched, or only an outline. */
function paint({ context, colours }: Pen, { fill, isHatched }: Look, { x, y, width, height }: Place): void {
  if (fill === "") {
    context.strokeStyle = colours.of["line-strong"];
    context.lineWidth = 1;
    context.setLineDash([2, 2]);
    context.strokeRect(x + 0.5, y + 0.5, width - 1, Math.max(0.5, height - 1));
    context.setLineDash([]);
    return;
  }
  context.fillStyle = fill;
  context.fillRect(x, y, width, height);
  if (isHatched) {
    hatch(context, colours.of.surface, { x, y, width, height });
  }
}

function hatch(context: CanvasRenderingContext2D, stroke: string, { x, y, width, height }: Place): void {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = stroke;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 5) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

/** The front of a machine, with its name and what is known of it. */
function drawFront(pen: Pen, machine: Machine, look: Look, { x, y, width, height }: Place): void {
  const { context, known, colours } = pen;
  context.fillStyle = colours.of.raised;
  context.strokeStyle = colours.of["line-strong"];
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x + 1.5, y + 0.5, width - 3, height - 1, 2);
  context.fill();
  context.stroke();
  if (look.fill !== "") {
    context.globalAlpha = known.by === "watts" ? 0.55 : 0.2;
    paint(pen, { ...look, isHatched: false }, { x: x + 2, y: y + 1, width: width - 4, height: height - 2 });
    context.globalAlpha = 1;
  }
  paint(pen, look, { x: x + 2, y: y + 1, width: 6, height: height - 2 });
  const isTall = height >= 30;
  const size = Math.min(12, Math.max(8, height - 1));
  context.textAlign = "left";
  context.fillStyle = colours.of.text;
  context.font = `${size}px ${colours.mono}`;
  context.fillText(machine.name, x + 15, y + (isTall ? 14 : height / 2 + 0.5), width - 20);
  if (isTall) {
    context.fillStyle = colours.of["text-dim"];
    context.font = `11.5px ${colours.sans}`;
    context.fillText(wordOf(known, machine), x + 15, y + 30, width - 22);
    drawBays(context, colours, { x: x + 15, y: y + 42, width: width - 26, height: height - 50 });
  }
}

/** Drive bays, so that a tall machine looks like one. */
function drawBays(context: CanvasRenderingContext2D, colours: Colours, { x, y, width, height }: Place): void {
  if (height < 14) {
    return;
  }
  context.fillStyle = colours.of.line;
  const [columns, lines] = [8, 2];
  const [wide, high] = [width / columns, height / lines];
  for (let index = 0; index < columns * lines; index += 1) {
    context.fillRect(x + (index % columns) * wide, y + Math.floor(index / columns) * high, wide - 3, high - 3);
  }
}
