import type { NodeStateWord } from "../words";
import { nodeStateTone } from "../words";
import { waitKind, type Row } from "./row";

export interface WaitCount {
  kind: string;
  count: number;
  /** The longest wait, in milliseconds since the epoch. */
  oldest: number;
  examples: string[];
}

/** What the fleet page counts, in one pass over the nodes. */
export interface Counts {
  total: number;
  states: Map<NodeStateWord, number>;
  skus: Map<string, Map<NodeStateWord, number>>;
  healths: Map<string, number>;
  waits: WaitCount[];
  /** Past the deadline of their state. */
  late: number;
  working: number;
}

function add<K>(map: Map<K, number>, key: K): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}

export function isLate(row: Row, now: number): boolean {
  return nodeStateTone(row.state) === "busy" && row.deadline < now;
}

export function countNodes(rows: Iterable<Row>): Counts {
  const now = Date.now();
  const counts: Counts = {
    total: 0,
    states: new Map(),
    skus: new Map(),
    healths: new Map(),
    waits: [],
    late: 0,
    working: 0,
  };
  const waits = new Map<string, WaitCount>();
  for (const row of rows) {
    counts.total += 1;
    add(counts.states, row.state);
    add(counts.healths, row.health);
    const sku = counts.skus.get(row.sku) ?? new Map<NodeStateWord, number>();
    counts.skus.set(row.sku, sku);
    add(sku, row.state);
    counts.late += isLate(row, now) ? 1 : 0;
    counts.working += nodeStateTone(row.state) === "busy" ? 1 : 0;
    if (row.waitsFor !== "") {
      addWait(waits, row);
    }
  }
  counts.waits = [...waits.values()].sort((a, b) => b.count - a.count || a.kind.localeCompare(b.kind));
  counts.skus = new Map([...counts.skus].sort(([a], [b]) => a.localeCompare(b)));
  return counts;
}

function addWait(waits: Map<string, WaitCount>, row: Row): void {
  const kind = waitKind(row.waitsFor);
  const known = waits.get(kind);
  if (known === undefined) {
    waits.set(kind, { kind, count: 1, oldest: row.since, examples: [row.id] });
    return;
  }
  known.count += 1;
  known.oldest = Math.min(known.oldest, row.since);
  if (known.examples.length < 3) {
    known.examples.push(row.id);
  }
}
