import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useColours } from "../hall/colours";
import { kw } from "../hall/pdus";
import { prepare, useBox } from "../hall/use-box";
import { navigate } from "../router";
import { drawRacks } from "./draw";
import { chipAt, frameOf, layOut, lineOf, moved, NOWHERE, spotAt, unplaced, type Layout, type Size, type Spot } from "./layout";
import { rackWatts, wordOf, type Known } from "./look";
import type { Rack } from "./model";

interface Props {
  racks: Rack[];
  known: Known;
  /** Grows when the nodes change. */
  version: number;
  size: Size;
  label: string;
  spot: Spot;
  setSpot(spot: Spot): void;
}

/** Racks in elevation. Only the visible ones are drawn. */
export function RackPicture({ racks, known, version, size, label, spot, setSpot }: Props) {
  const [place, box] = useBox<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useColours();
  const [top, setTop] = useState(0);
  const layout = useMemo(() => layOut(racks, size, box.width), [racks, size, box.width]);
  useEffect(() => {
    const context = canvas.current && box.width > 0 ? prepare(canvas.current, box) : null;
    if (context !== null) {
      drawRacks(context, layout, known, colours, top, box.height);
    }
  }, [layout, known, version, colours, top, box]);
  const point = (event: MouseEvent): Spot => {
    const at = canvas.current?.getBoundingClientRect();
    return at ? spotAt(layout, event.clientX - at.left, event.clientY - at.top + top) : NOWHERE;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = moved(layout, spot, event.key);
      setSpot(next);
      show(place.current, layout, next);
    } else if (event.key === "Enter") {
      open(racks, spot);
    } else if (event.key === "Escape") {
      setSpot(NOWHERE);
    }
  };
  return (
    <div class="racks-scroll" ref={place} onScroll={(event) => setTop(event.currentTarget.scrollTop)} style={{ "--content": `${layout.height}px` }}>
      <div style={{ height: `${layout.height}px` }}>
        <canvas
          ref={canvas}
          role="img"
          tabIndex={0}
          aria-label={label}
          style={{ width: `${box.width}px`, height: `${box.height}px` }}
          onMouseMove={(event) => setSpot(point(event))}
          onMouseLeave={() => setSpot(NOWHERE)}
          onClick={(event) => open(racks, point(event))}
          onKeyDown={onKeyDown}
        />
        <Tip layout={layout} known={known} spot={spot} width={box.width} isLow={(y) => y - top > box.height - 130} />
      </div>
    </div>
  );
}

function open(racks: Rack[], { rack, machine }: Spot): void {
  const found = racks[rack]?.machines[machine];
  if (found?.isNode) {
    navigate(`/nodes/${encodeURIComponent(found.name)}`);
  } else if (found !== undefined) {
    navigate(`/fabric?switch=${encodeURIComponent(found.name)}`);
  }
}

/** Scrolls so that the rack is visible. */
function show(place: HTMLElement | null, layout: Layout, { rack }: Spot): void {
  const line = lineOf(layout, rack);
  if (place === null || line === undefined) {
    return;
  }
  const bottom = line.y + line.height + layout.measure.foot;
  if (line.y < place.scrollTop) {
    place.scrollTop = line.y - 30;
  } else if (bottom > place.scrollTop + place.clientHeight) {
    place.scrollTop = bottom - place.clientHeight;
  }
}

const TIP = 270;

function areaOf(layout: Layout, spot: Spot): { x: number; y: number; width: number; height: number } | null {
  const line = lineOf(layout, spot.rack);
  const rack = layout.racks[spot.rack];
  if (line === undefined || rack === undefined) {
    return null;
  }
  const frame = frameOf(layout, line, spot.rack);
  const { unit, width, side } = layout.measure;
  const machine = rack.machines[spot.machine];
  if (machine === undefined) {
    return { x: frame.x - side, y: frame.y, width: width + 2 * side, height: frame.height };
  }
  if (machine.unit === 0) {
    const chip = chipAt(layout, unplaced(rack).indexOf(spot.machine));
    return { x: frame.x + chip.x, y: frame.y + frame.height + chip.y, width: chip.size, height: chip.size };
  }
  return { x: frame.x, y: frame.y + frame.height - (machine.unit - 1 + machine.height) * unit, width, height: machine.height * unit };
}

function Tip({ layout, known, spot, width, isLow }: { layout: Layout; known: Known; spot: Spot; width: number; isLow(y: number): boolean }) {
  const area = areaOf(layout, spot);
  const rack = layout.racks[spot.rack];
  if (area === null || rack === undefined) {
    return null;
  }
  const left = Math.max(4, Math.min(area.x, width - TIP - 8));
  const bottom = area.y + area.height + 6;
  const style = isLow(bottom) ? { left: `${left}px`, top: `${area.y - 6}px`, transform: "translateY(-100%)" } : { left: `${left}px`, top: `${bottom}px` };
  return (
    <>
      <span class="rack-cursor" style={{ left: `${area.x}px`, top: `${area.y}px`, width: `${area.width}px`, height: `${area.height}px` }} />
      <div class="heat-tip" style={style} role="status">
        {spot.pdu >= 0 ? <PduTip rack={rack} index={spot.pdu} known={known} /> : <MachineTip rack={rack} index={spot.machine} known={known} />}
      </div>
    </>
  );
}

function MachineTip({ rack, index, known }: { rack: Rack; index: number; known: Known }) {
  const machine = rack.machines[index];
  if (machine === undefined) {
    const free = rack.units - rack.machines.reduce((sum, { unit, height }) => sum + (unit > 0 ? height : 0), 0);
    return (
      <>
        <p>
          <strong class="name">{rack.name}</strong> <span class="dim">{rack.room}</span>
        </p>
        <p class="dim">
          {rack.units} units, {free} without a machine; {rack.loop === "" ? "air" : `cooling loop ${rack.loop}`}
        </p>
      </>
    );
  }
  const row = known.rows.get(machine.name);
  const alarm = known.alarms.ofNode.get(machine.name);
  const facts = [machine.isNode ? machine.kind : "switch", row?.customer, known.clusterOf?.get(machine.name)].filter(Boolean).join(", ");
  return (
    <>
      <p>
        <strong class="name">{machine.name}</strong> <span>{machine.isNode ? (row?.state ?? "not enrolled") : machine.kind}</span>
      </p>
      <p class="dim">
        {rack.name}, {machine.unit > 0 ? unitsText(machine.unit, machine.height) : "unit unknown"}; {facts}
      </p>
      {known.by === "watts" && <p>rack: {rackWatts(known, rack)}</p>}
      {known.by === "temperature" && machine.isNode && <p>temperature {wordOf(known, machine)}</p>}
      {alarm && <p class="bad-text">{alarm.message}</p>}
    </>
  );
}

export function unitsText(unit: number, height: number): string {
  return height === 1 ? `unit ${unit}` : `units ${unit} to ${unit + height - 1}`;
}

function PduTip({ rack, index, known }: { rack: Rack; index: number; known: Known }) {
  const pdu = rack.pdus[index];
  const row = known.pdus?.get(pdu?.name ?? "");
  const alarm = known.alarms.ofPdu.get(pdu?.name ?? "");
  return (
    <>
      <p>
        <strong class="name">{pdu?.name}</strong> <span>{pdu?.feed ? `feed ${pdu.feed}` : "feed unknown"}</span>
      </p>
      <p class="dim">
        measured {kw(row?.measuredWatts)}, reserved {row ? kw(row.reservedWatts ?? 0) : "unknown"}, permitted {row ? kw(row.deratedWatts ?? 0) : "unknown"}
      </p>
      {alarm && <p class="bad-text">{alarm.message}</p>}
    </>
  );
}
