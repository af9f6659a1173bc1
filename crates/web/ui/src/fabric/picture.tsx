import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Colours } from "../hall/colours";
import { prepare, useBox, type Box } from "../hall/use-box";
import { Icon } from "../parts/icon";
import { navigate } from "../router";
import { drawFabric, type Scene } from "./draw";
import { cellAt, layOut, planOf, podAt, type Cell, type Layout } from "./layout";
import type { Fabric } from "./model";
import { around, fit, panned, zoomed, type View } from "./view";

interface Props {
  fabric: Fabric;
  members: ReadonlyMap<string, string[]>;
  /** Everything but the places. */
  scene: Omit<Scene, "layout">;
  colours: Colours;
  /** Grows when the nodes change. */
  version: number;
  label: string;
  /** Names of the devices to show closely; empty: none. */
  focus: string[];
  choose(name: string): void;
  tip(cell: Cell): ComponentChildren;
}

const STEP = 1.35;
const PAN = 60;
/** Below this many pixels a click on a pod zooms to it. */
const TINY = 7;

/** The fat-tree. It is zoomed and moved by mouse, keys and buttons. */
export function FabricPicture({ fabric, members, scene, colours, version, label, focus, choose, tip }: Props) {
  const [place, box] = useBox<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const plan = useMemo(() => (box.width > 0 ? planOf(fabric, box) : null), [fabric, box]);
  const layout = useMemo(() => plan && layOut(fabric, members, plan), [fabric, members, plan]);
  const [given, setView] = useState<View | null>(null);
  const [hovered, setHovered] = useState<Cell | null>(null);
  const view = layout === null ? null : (given ?? fit(layout, box));
  useEffect(() => setView(null), [fabric]);
  useEffect(() => {
    const cells = focus.flatMap((name) => layout?.byName.get(name) ?? []);
    if (layout !== null && cells.length > 0) {
      setView(around(boundsOf(cells), layout, box));
    }
  }, [focus.join(" "), layout]);
  useEffect(() => {
    const context = canvas.current && layout && view ? prepare(canvas.current, box) : null;
    if (context && layout && view) {
      drawFabric(context, { ...scene, layout }, view, box, colours);
    }
  }, [layout, view?.scale, view?.x, view?.y, scene, version, colours, box]);
  const mouse = useMouse(canvas, layout, view, box, setView, setHovered);
  const zoom = (factor: number) => layout && view && setView(zoomed(view, factor, box.width / 2, box.height / 2, layout, box));
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = { ArrowLeft: [PAN, 0], ArrowRight: [-PAN, 0], ArrowUp: [0, PAN], ArrowDown: [0, -PAN] };
    const move = moves[event.key];
    if (move && layout && view) {
      event.preventDefault();
      setView(panned(view, ...move, layout, box));
    } else if (event.key === "+" || event.key === "=") {
      zoom(STEP);
    } else if (event.key === "-") {
      zoom(1 / STEP);
    } else if (event.key === "0") {
      setView(null);
    }
  };
  const onClick = (event: MouseEvent) => {
    const at = mouse.point(event);
    if (layout === null || view === null || at === null || mouse.wasDragged()) {
      return;
    }
    const cell = cellAt(layout, at.x, at.y);
    const pod = podAt(layout, at.x, at.y);
    if (view.scale < TINY && pod !== null) {
      setView(around(pod.area, layout, box));
    } else if (cell?.of) {
      choose(cell.name);
    } else if (cell?.name) {
      navigate(`/nodes/${encodeURIComponent(cell.name)}`);
    }
  };
  return (
    <div class="fabric-picture" ref={place}>
      <canvas
        ref={canvas}
        role="img"
        tabIndex={0}
        aria-label={label}
        style={{ width: `${box.width}px`, height: `${box.height}px`, touchAction: given === null ? "pan-y" : "none" }}
        onKeyDown={onKeyDown}
        onClick={onClick}
        {...mouse.handlers}
      />
      <Buttons zoom={zoom} reset={() => setView(null)} />
      {hovered && view && <Tip cell={hovered} view={view} box={box} tip={tip} />}
    </div>
  );
}

function boundsOf(cells: Cell[]): { x: number; y: number; w: number; h: number } {
  const x = Math.min(...cells.map((cell) => cell.x));
  const y = Math.min(...cells.map((cell) => cell.y));
  return { x, y, w: Math.max(...cells.map((cell) => cell.x + cell.w)) - x, h: Math.max(...cells.map((cell) => cell.y + cell.h)) - y };
}

/** Zooms by the wheel, moves by dragging, and tells what is under the pointer. */
function useMouse(
  canvas: { current: HTMLCanvasElement | null },
  layout: Layout | null,
  view: View | null,
  box: Box,
  setView: (view: View | null) => void,
  setHovered: (cell: Cell | null) => void,
) {
  const drag = useRef({ isDown: false, moved: 0 });
  const latest = useRef({ layout, view, box });
  latest.current = { layout, view, box };
  useEffect(() => {
    const place = canvas.current;
    const onWheel = (event: WheelEvent) => {
      const { layout: now, view: before, box: size } = latest.current;
      if (now === null || before === null) {
        return;
      }
      const next = zoomed(before, Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY, now, size);
      // At the smallest scale the page scrolls.
      if (event.deltaY < 0 || next.scale !== before.scale || before.scale > fit(now, size).scale) {
        event.preventDefault();
        setView(next);
      }
    };
    place?.addEventListener("wheel", onWheel, { passive: false });
    return () => place?.removeEventListener("wheel", onWheel);
  }, []);
  const point = (event: MouseEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    return at && view ? { x: (event.clientX - at.left - view.x) / view.scale, y: (event.clientY - at.top - view.y) / view.scale } : null;
  };
  const onPointerMove = (event: PointerEvent) => {
    const at = point(event);
    if (drag.current.isDown && layout && view) {
      drag.current.moved += Math.abs(event.movementX) + Math.abs(event.movementY);
      setView(panned(view, event.movementX, event.movementY, layout, box));
      setHovered(null);
    } else {
      setHovered(at && layout ? cellAt(layout, at.x, at.y) : null);
    }
  };
  const handlers = {
    onPointerDown: () => {
      drag.current = { isDown: true, moved: 0 };
    },
    onPointerUp: () => {
      drag.current.isDown = false;
    },
    onPointerLeave: () => {
      drag.current.isDown = false;
      setHovered(null);
    },
    onPointerMove,
  };
  return { point, handlers, wasDragged: () => drag.current.moved > 5 };
}

function Buttons({ zoom, reset }: { zoom(factor: number): void; reset(): void }) {
  return (
    <div class="fabric-buttons">
      <button type="button" aria-label="Larger" title="Larger (+)" onClick={() => zoom(STEP)}>
        +
      </button>
      <button type="button" aria-label="Smaller" title="Smaller (-)" onClick={() => zoom(1 / STEP)}>
        -
      </button>
      <button type="button" aria-label="Show all" title="Show all (0)" onClick={reset}>
        <Icon name="map" />
      </button>
    </div>
  );
}

const TIP = 270;

function Tip({ cell, view, box, tip }: { cell: Cell; view: View; box: Box; tip(cell: Cell): ComponentChildren }) {
  const x = view.x + cell.x * view.scale;
  const y = view.y + (cell.y + cell.h) * view.scale + 8;
  const isLow = y > box.height - 90;
  const left = Math.max(4, Math.min(x, box.width - TIP - 8));
  const style = isLow ? { left: `${left}px`, bottom: `${box.height - view.y - cell.y * view.scale + 8}px` } : { left: `${left}px`, top: `${y}px` };
  return (
    <div class="heat-tip" style={style} role="status">
      {tip(cell)}
    </div>
  );
}
