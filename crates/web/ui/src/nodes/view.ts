import { useMemo, useRef } from "preact/hooks";
import { isLate } from "../fleet/counts";
import { waitKind, type Row } from "../fleet/row";
import type { NodeStore } from "../fleet/store";
import { columnOf } from "./columns";

/** What the list shows of the matching nodes, beyond the API's filter. */
export interface Narrowing {
  health: string;
  waits: string;
  late: boolean;
}

export function narrowingOf(query: URLSearchParams): Narrowing {
  return { health: query.get("health") ?? "", waits: query.get("waits") ?? "", late: query.has("late") };
}

function isShown(row: Row, { health, waits, late }: Narrowing, now: number): boolean {
  return (
    (health === "" || row.health === health) &&
    (waits === "" || (row.waitsFor !== "" && waitKind(row.waitsFor) === waits)) &&
    (!late || isLate(row, now))
  );
}

function comparator(sort: string): (a: Row, b: Row) => number {
  const isFalling = sort.startsWith("-");
  const value = columnOf(sort.replace("-", ""))?.value ?? ((row: Row) => row.id);
  const sign = isFalling ? -1 : 1;
  return (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === right) {
      return a.id < b.id ? -1 : 1;
    }
    return left < right ? -sign : sign;
  };
}

/** The shown nodes in their order. The former order is sorted again: it is nearly right, which makes the sort fast. */
export function useView(store: NodeStore, narrowing: Narrowing, sort: string): Row[] {
  const version = store.version.value;
  const order = useRef({ store, members: -1, sort: "", ids: [] as string[] });
  const { health, waits, late } = narrowing;
  return useMemo(() => {
    const known = order.current;
    const isSame = known.store === store && known.members === store.members;
    const ids = isSame ? known.ids : [...store.rows.keys()];
    const rows: Row[] = [];
    for (const id of ids) {
      const row = store.rows.get(id);
      if (row !== undefined) {
        rows.push(row);
      }
    }
    // Names do not change: the order by name is right until a node comes or goes.
    if (!isSame || known.sort !== sort || sort.replace("-", "") !== "node") {
      rows.sort(comparator(sort));
      order.current = { store, members: store.members, sort, ids: rows.map((row) => row.id) };
    }
    const now = Date.now();
    const isWhole = health === "" && waits === "" && !late;
    return isWhole ? rows : rows.filter((row) => isShown(row, { health, waits, late }, now));
  }, [store, version, sort, health, waits, late]);
}
