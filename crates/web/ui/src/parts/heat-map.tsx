import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { draw, palette } from "../fleet/draw";
import { cellAt, layOut, type Layout } from "../fleet/layout";
import { words, type Row } from "../fleet/row";
import { navigate } from "../router";
import { paletteVersion } from "../theme";
import { NODE_STATES, nodeState, type NodeStateWord } from "../words";
import { StateBadge } from "./state";
import { Ago } from "./text";

interface Props {
  rows: Row[];
  /** Grows when the rows change. */
  version: number;
  groupOf: ((row: Row) => string) | null;
  height: number;
  /** What the picture shows, in words. */
  label: string;
}

function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const place = ref.current;
    if (place === null) {
      return undefined;
    }
    const observer = new ResizeObserver(() => setWidth(Math.floor(place.clientWidth)));
    observer.observe(place);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/** Every node as one cell in the colour of its state. The list of nodes says the same as a table. */
export function HeatMap({ rows, version, groupOf, height, label }: Props) {
  const [place, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState(-1);
  const layout = useMemo(() => layOut(rows, groupOf, width, height), [rows, version, groupOf, width, height]);
  const colours = useMemo(palette, [paletteVersion.value]);
  useEffect(() => {
    if (canvas.current !== null && width > 0) {
      draw(canvas.current, layout, width, colours);
    }
  }, [layout, colours, width]);
  const point = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    return box ? cellAt(layout, event.clientX - box.left, event.clientY - box.top) : -1;
  };
  const open = (index: number) => {
    const row = layout.rows[index];
    if (row !== undefined) {
      navigate(`/nodes/${encodeURIComponent(row.id)}`);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -layout.columns,
      ArrowDown: layout.columns,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setCursor(Math.min(Math.max(0, cursor + step), layout.rows.length - 1));
    } else if (event.key === "Enter") {
      open(cursor);
    }
  };
  return (
    <div class="heat" ref={place}>
      {layout.blocks.map(({ title, y, size }) => (
        <p class="heat-title" key={title} style={{ top: `${y}px` }}>
          {title} <span class="dim">{size.toLocaleString("en-US")}</span>
        </p>
      ))}
      <canvas
        ref={canvas}
        role="img"
        tabIndex={0}
        aria-label={label}
        style={{ width: `${width}px`, height: `${layout.height}px` }}
        onMouseMove={(event) => setCursor(point(event))}
        onMouseLeave={() => setCursor(-1)}
        onClick={(event) => open(point(event))}
        onKeyDown={onKeyDown}
        onBlur={() => setCursor(-1)}
      />
      <Cursor layout={layout} index={cursor} width={width} group={groupOf} />
    </div>
  );
}

/** The states with their numbers, in words. */
export function inWords(counts: Map<NodeStateWord, number>): string {
  return [...counts].map(([state, number]) => `${number} ${state}`).join(", ");
}

const TIP = 260;

function Cursor({
  layout,
  index,
  width,
  group: groupOf,
}: {
  layout: Layout;
  index: number;
  width: number;
  group: Props["groupOf"];
}) {
  const row = layout.rows[index];
  if (row === undefined) {
    return null;
  }
  const [x, y] = [layout.xs[index] ?? 0, layout.ys[index] ?? 0];
  const group = groupOf?.(row) ?? "";
  const size = `${Math.max(5, layout.pitch)}px`;
  const left = Math.max(0, Math.min(x - 12, width - TIP));
  return (
    <>
      <span class="heat-cursor" style={{ left: `${x}px`, top: `${y}px`, width: size, height: size }} />
      <div class="heat-tip" style={{ left: `${left}px`, top: `${y + layout.pitch + 8}px` }} role="status">
        <p>
          <strong class="name">{row.id}</strong> <StateBadge state={nodeState(row.state)} />
        </p>
        <p class="dim">
          for <Ago time={row.since} bare />
          {row.sku && `, ${row.sku}`}
          {row.customer && `, ${row.customer}`}
          {group && group !== row.sku && group !== row.customer && group !== row.state && `, ${group}`}
        </p>
        {words(row) && <p>{row.reason ? row.reason : `waits for ${row.waitsFor}`}</p>}
      </div>
    </>
  );
}

/** The colours of the states, with the number of nodes in each. */
export function Legend({ counts, query }: { counts: Map<NodeStateWord, number>; query(state: NodeStateWord): string }) {
  const shown = [...NODE_STATES, "unknown" as const].filter((state) => (counts.get(state) ?? 0) > 0);
  return (
    <ul class="legend">
      {shown.map((state) => (
        <li key={state} data-state={state}>
          <a href={query(state)}>
            <span class="swatch" />
            {state} <strong>{(counts.get(state) ?? 0).toLocaleString("en-US")}</strong>
          </a>
        </li>
      ))}
    </ul>
  );
}
