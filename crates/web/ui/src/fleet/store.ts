import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { WatchNodesResponse } from "../api";
import { call, follow } from "../client";
import { ApiError } from "../errors";
import { short } from "../names";
import { rowOf, type Row } from "./row";

/** A store without readers is kept for this long: pages that follow each other share it. */
const LINGER_MS = 60_000;
/** The shortest time between two drawings of changes. */
const DRAW_MS = 120;
const MANY = 20_000;
const DRAW_MANY_MS = 300;
const PAGE = 1_000;
/** WatchNodes tells of changes that are events; a wait that changes is none. Lists tell of these. */
const RELIST_MS = 20_000;
const RELIST_MS_A_NODE = 3;

/** The nodes that match a filter, kept up to date. */
export class NodeStore {
  readonly filter: string;
  readonly rows = new Map<string, Row>();
  /** Grows with each visible change. */
  readonly version = signal(0);
  /** Grows when nodes come or go. */
  members = 0;
  /** All nodes have been received. */
  readonly isSynced = signal(false);
  readonly error = signal<ApiError | null>(null);

  private readers = 0;
  private stop: AbortController | null = null;
  private lingering: number | undefined;
  private drawing: number | undefined;
  private relisting: number | undefined;
  private drawnAt = 0;
  /** Nodes of the present connection. */
  private seen = new Set<string>();
  /** When a node was changed by the stream; a list that was asked for earlier is older. */
  private readonly changedAt = new Map<string, number>();

  constructor(filter: string) {
    this.filter = filter;
  }

  retain(): void {
    this.readers += 1;
    window.clearTimeout(this.lingering);
    if (this.stop === null) {
      this.start();
    }
  }

  release(): void {
    this.readers -= 1;
    if (this.readers === 0) {
      this.lingering = window.setTimeout(() => this.end(), LINGER_MS);
    }
  }

  retry(): void {
    this.stop?.abort();
    this.start();
  }

  private start(): void {
    const stop = new AbortController();
    this.stop = stop;
    this.error.value = null;
    void follow(
      "NodeService/WatchNodes",
      () => ({ filter: this.filter }),
      {
        begin: () => this.seen.clear(),
        message: (message) => this.take(message),
        drained: () => this.draw(),
        failed: (error) => {
          this.error.value = error;
        },
      },
      stop.signal,
    );
    this.planRelist(stop.signal);
  }

  private end(): void {
    this.stop?.abort();
    this.stop = null;
    window.clearTimeout(this.relisting);
    stores.delete(this.filter);
  }

  private take(message: WatchNodesResponse): void {
    if (message.synced) {
      for (const id of this.rows.keys()) {
        if (!this.seen.has(id)) {
          this.remove(id);
        }
      }
      this.isSynced.value = true;
      return;
    }
    const { node } = message;
    if (node === undefined) {
      return;
    }
    const id = short("nodes", node.name);
    if (message.deleted) {
      this.remove(id);
      return;
    }
    this.seen.add(id);
    if (this.isSynced.peek()) {
      this.changedAt.set(id, performance.now());
    }
    if (!this.rows.has(id)) {
      this.members += 1;
    }
    this.rows.set(id, rowOf(node));
  }

  private remove(id: string): void {
    if (this.rows.delete(id)) {
      this.members += 1;
    }
    this.changedAt.delete(id);
  }

  private draw(): void {
    if (this.drawing !== undefined) {
      return;
    }
    const pause = Math.max(0, this.drawnAt + (this.rows.size > MANY ? DRAW_MANY_MS : DRAW_MS) - performance.now());
    this.drawing = window.setTimeout(() => {
      this.drawing = undefined;
      this.drawnAt = performance.now();
      this.version.value += 1;
    }, pause);
  }

  private planRelist(signal: AbortSignal): void {
    window.clearTimeout(this.relisting);
    const pause = RELIST_MS + this.rows.size * RELIST_MS_A_NODE;
    this.relisting = window.setTimeout(async () => {
      if (!document.hidden && this.isSynced.peek()) {
        await this.relist(signal).catch(() => undefined);
      }
      if (!signal.aborted) {
        this.planRelist(signal);
      }
    }, pause);
  }

  private async relist(signal: AbortSignal): Promise<void> {
    const request = { filter: this.filter, pageSize: PAGE, readMask: "name,spec,status,metadata" };
    let pageToken = "";
    do {
      const askedAt = performance.now();
      const page = await call("NodeService/ListNodes", { ...request, pageToken }, signal);
      for (const node of page.nodes ?? []) {
        const row = rowOf(node);
        const isKnown = this.rows.has(row.id);
        if (isKnown && (this.changedAt.get(row.id) ?? 0) < askedAt) {
          this.rows.set(row.id, row);
        }
      }
      pageToken = page.nextPageToken ?? "";
      this.draw();
    } while (pageToken !== "");
  }
}

const stores = new Map<string, NodeStore>();

function storeOf(filter: string): NodeStore {
  const known = stores.get(filter);
  if (known !== undefined) {
    return known;
  }
  const store = new NodeStore(filter);
  stores.set(filter, store);
  return store;
}

/** The nodes that match a filter of the API, for as long as the component is shown. */
export function useNodes(filter: string): NodeStore {
  const store = useMemo(() => storeOf(filter), [filter]);
  useEffect(() => {
    store.retain();
    return () => store.release();
  }, [store]);
  return store;
}

/** The nodes of the site, if a page has them at the moment. */
export function loadedNodes(): NodeStore | undefined {
  return stores.get("");
}
