import type { RefObject } from "preact";
import { useState } from "preact/hooks";
import type { Row } from "../fleet/row";
import { navigate } from "../router";

interface Options {
  place: RefObject<HTMLDivElement | null>;
  rows: Row[];
  /** Of one row, in pixels. */
  height: number;
  /** Selects the row at the cursor, or takes it out; null: rows cannot be selected. */
  toggle: ((row: Row) => void) | null;
}

/** The row that the keyboard is at: j, k and the arrows move it, Enter opens it, x selects it. */
export function useCursor({ place, rows, height, toggle }: Options): [number, (event: KeyboardEvent) => void] {
  const [cursor, setCursor] = useState(-1);
  const move = (to: number) => {
    const next = Math.min(Math.max(0, to), rows.length - 1);
    setCursor(next);
    const top = next * height;
    const box = place.current;
    if (box && top < box.scrollTop) {
      box.scrollTop = top;
    } else if (box && top + height > box.scrollTop + box.clientHeight - height) {
      box.scrollTop = top + 2 * height - box.clientHeight;
    }
  };
  const stepOf = (key: string): number | undefined => {
    const pageful = Math.floor((place.current?.clientHeight ?? 0) / height) - 2;
    const steps: Record<string, number> = {
      j: 1,
      ArrowDown: 1,
      k: -1,
      ArrowUp: -1,
      PageDown: pageful,
      PageUp: -pageful,
      Home: -rows.length,
      End: rows.length,
    };
    return steps[key];
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const isOnBox = event.target instanceof HTMLInputElement;
    const row = rows[cursor];
    const step = stepOf(event.key);
    if (step !== undefined) {
      event.preventDefault();
      move(cursor + step);
    } else if (event.key === "Enter" && row && !(event.target instanceof HTMLAnchorElement)) {
      navigate(`/nodes/${encodeURIComponent(row.id)}`);
    } else if ((event.key === "x" || (event.key === " " && !isOnBox)) && row && toggle !== null) {
      event.preventDefault();
      toggle(row);
    }
  };
  return [cursor, onKeyDown];
}
