import { useEffect, useRef } from "preact/hooks";
import type { Cluster } from "../api";
import { follow, pages } from "../client";
import { useWork, type Called } from "../use-call";

const POLL_MS = 10_000;
/** Events that come together cause one reading. */
const GATHER_MS = 250;

/** Calls `reload` soon after each event about resources with names that begin with `prefix`. */
export function useReloadOnEvents(prefix: string, reload: () => void): void {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    const stop = new AbortController();
    let timer: number | undefined;
    const message = ({ target }: { target?: string }) => {
      if (target?.startsWith(prefix)) {
        timer ??= window.setTimeout(() => {
          timer = undefined;
          latest.current();
        }, GATHER_MS);
      }
    };
    void follow("EventService/StreamEvents", () => ({ onlyNew: true }), { message }, stop.signal);
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [prefix]);
}

/** All clusters that match a filter of the API, kept up to date. */
export function useClusters(filter: string): Called<Cluster[]> {
  const called = useWork(
    (signal) => pages("ClusterService/ListClusters", { pageSize: 1_000, filter }, ({ clusters }) => clusters, signal),
    `clusters ${filter}`,
    { everyMs: POLL_MS },
  );
  useReloadOnEvents("clusters/", called.reload);
  return called;
}
