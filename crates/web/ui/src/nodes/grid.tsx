import { Component, type RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { words, type Row } from "../fleet/row";
import { count } from "../units";
import { columnOf, type NodeColumn } from "./columns";
import { useCursor } from "./cursor";

const ROW = 30;
const NARROW_ROW = 50;
const NARROW = 640;
/** The head of the table, and the borders. */
const HEAD = 35;
/** Rows drawn above and below the visible ones. */
const BEYOND = 8;
const STEP = 90;

interface Props {
  rows: Row[];
  columns: NodeColumn[];
  sort: string;
  onSort(key: string): void;
  selected: ReadonlySet<string>;
  onSelect(ids: string[], isSelected: boolean): void;
  onSelectAll(isSelected: boolean): void;
  canSelect: boolean;
}

interface Window {
  top: number;
  height: number;
  width: number;
}

/** The visible part of the scrolled place. */
function useWindow(): [RefObject<HTMLDivElement | null>, Window] {
  const ref = useRef<HTMLDivElement>(null);
  const [part, setPart] = useState<Window>({ top: 0, height: 800, width: 1_200 });
  useEffect(() => {
    const place = ref.current;
    if (place === null) {
      return undefined;
    }
    const read = () => {
      // Steps of a few rows: a smaller movement needs no drawing.
      const top = Math.floor(place.scrollTop / STEP) * STEP;
      const [height, width] = [place.clientHeight, place.clientWidth];
      setPart((before) =>
        before.top === top && before.height === height && before.width === width ? before : { top, height, width },
      );
    };
    read();
    place.addEventListener("scroll", read, { passive: true });
    const observer = new ResizeObserver(read);
    observer.observe(place);
    return () => {
      place.removeEventListener("scroll", read);
      observer.disconnect();
    };
  }, []);
  return [ref, part];
}

/** A table of nodes of which only the visible rows are in the document. */
export function NodeGrid(props: Props) {
  const { rows, selected, onSelect, canSelect } = props;
  const [place, part] = useWindow();
  const isNarrow = part.width < NARROW;
  const height = isNarrow ? NARROW_ROW : ROW;
  const columns = isNarrow ? NARROW_COLUMNS : props.columns;
  const first = Math.max(0, Math.floor(part.top / height) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((part.top + part.height) / height) + BEYOND);
  // A row keeps its place in the document while it is visible; a new one takes the place of one that has left.
  const slots = Math.ceil(part.height / height) + 2 * BEYOND + 2;
  const toggle = canSelect ? (row: Row) => onSelect([row.id], !selected.has(row.id)) : null;
  const [cursor, onKeyDown] = useCursor({ place, rows, height, toggle });
  const atCursor = rows[cursor];
  return (
    <div
      class={isNarrow ? "grid narrow" : "grid"}
      ref={place}
      tabIndex={0}
      role="group"
      aria-label="Nodes"
      style={{ "--content": `${rows.length * height + HEAD}px` }}
      onKeyDown={onKeyDown}
    >
      <span class="sr" role="status">
        {atCursor ? `${atCursor.id}, ${atCursor.state}` : ""}
      </span>
      <table aria-rowcount={rows.length + 1}>
        <caption class="sr">{count(rows.length)} nodes. j and k move, Enter opens, x selects.</caption>
        <colgroup>
          {canSelect && <col style={{ width: "34px" }} />}
          {columns.map(({ key, width }) => (
            <col key={key} style={width === 0 ? undefined : { width: `${width}px` }} />
          ))}
        </colgroup>
        <Head {...props} columns={columns} />
        <tbody>
          <Space height={first * height} />
          {rows.slice(first, last).map((row, index) => (
            <Line
              key={(first + index) % slots}
              row={row}
              index={first + index}
              columns={columns}
              isNarrow={isNarrow}
              isAtCursor={first + index === cursor}
              isSelected={selected.has(row.id)}
              onSelect={canSelect ? onSelect : null}
            />
          ))}
          <Space height={(rows.length - last) * height} />
        </tbody>
      </table>
    </div>
  );
}

const NARROW_COLUMNS = Object.entries({ node: 0, state: 118, since: 62 }).flatMap(([key, width]) => {
  const column = columnOf(key);
  return column ? [{ ...column, width }] : [];
});

function Space({ height }: { height: number }) {
  return (
    <tr class="space" aria-hidden="true">
      <td style={{ height: `${height}px` }} />
    </tr>
  );
}

function Head({ rows, columns, sort, onSort, selected, onSelectAll, canSelect }: Props) {
  const isAll = rows.length > 0 && selected.size >= rows.length;
  return (
    <thead>
      <tr>
        {canSelect && (
          <th scope="col" class="pick">
            <input
              type="checkbox"
              aria-label={`Select all ${rows.length} nodes`}
              checked={isAll}
              ref={(box) => {
                if (box) {
                  box.indeterminate = selected.size > 0 && !isAll;
                }
              }}
              onChange={(event) => onSelectAll(event.currentTarget.checked)}
            />
          </th>
        )}
        {columns.map(({ key, title }) => {
          const isSorted = sort.replace("-", "") === key;
          const isFalling = isSorted && sort.startsWith("-");
          return (
            <th key={key} scope="col" aria-sort={isSorted ? (isFalling ? "descending" : "ascending") : undefined}>
              <button type="button" onClick={() => onSort(isSorted && !isFalling ? `-${key}` : key)}>
                {title}
                {isSorted && <span aria-hidden="true">{isFalling ? " ↓" : " ↑"}</span>}
              </button>
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

interface LineProps {
  row: Row;
  index: number;
  columns: NodeColumn[];
  isNarrow: boolean;
  isAtCursor: boolean;
  isSelected: boolean;
  onSelect: Props["onSelect"] | null;
}

/** One row. It is drawn again only if something of it has changed: scrolling draws the new rows alone. */
class Line extends Component<LineProps> {
  override shouldComponentUpdate(next: LineProps): boolean {
    const now = this.props;
    return (Object.keys(next) as (keyof LineProps)[]).some((key) => next[key] !== now[key]);
  }

  render({ row, index, columns, isNarrow, isAtCursor, isSelected, onSelect }: LineProps) {
    const classes = [isAtCursor ? "cursor" : "", isSelected ? "selected" : ""].filter(Boolean).join(" ");
    return (
      <tr class={classes || undefined} aria-rowindex={index + 2}>
        {onSelect && (
          <td class="pick">
            <input
              type="checkbox"
              aria-label={`Select ${row.id}`}
              checked={isSelected}
              onChange={(event) => onSelect([row.id], event.currentTarget.checked)}
            />
          </td>
        )}
        {columns.map((column) => (
          <td key={column.key} class={column.isLong ? "clip" : undefined}>
            {column.cell(row)}
            {isNarrow && column.key === "node" && <span class="second">{words(row)}</span>}
          </td>
        ))}
      </tr>
    );
  }
}
