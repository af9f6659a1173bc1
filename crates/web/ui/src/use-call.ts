import { useEffect, useRef, useState } from "preact/hooks";
import type { Methods } from "./api";
import { call, type Method } from "./client";
import { connection } from "./connection";
import { ApiError, asApiError } from "./errors";

export interface Called<T> {
  /** The last response; undefined: none yet. */
  data: T | undefined;
  /** Why the last call failed; null: it did not. */
  error: ApiError | null;
  isLoading: boolean;
  reload(): void;
}

interface Options {
  /** Calls again after this time, while the page is seen. */
  everyMs?: number;
  /** False: no call is made. */
  isWanted?: boolean;
}

/** Calls a method when the component is shown and when the request changes. */
export function useCall<M extends Method>(
  method: M,
  request: Methods[M]["request"],
  options: Options = {},
): Called<Methods[M]["response"]> {
  return useWork((signal) => call(method, request, signal), `${method} ${JSON.stringify(request)}`, options);
}

/** Does asynchronous work as `useCall` does; `key` says which. */
export function useWork<T>(work: (signal: AbortSignal) => Promise<T>, key: string, options: Options = {}): Called<T> {
  const { everyMs = 0, isWanted = true } = options;
  const [state, setState] = useState<{ key: string; data?: T; error: ApiError | null; isLoading: boolean }>({
    key,
    error: null,
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    if (!isWanted) {
      return undefined;
    }
    const stop = new AbortController();
    let timer: number | undefined;
    const run = async () => {
      if (!document.hidden && connection.peek().isUp) {
        setState((before) => ({ ...before, isLoading: true }));
        try {
          const data = await latest.current(stop.signal);
          setState({ key, data, error: null, isLoading: false });
        } catch (error) {
          if (!stop.signal.aborted) {
            const data = (before: { key: string; data?: T }) => (before.key === key ? before.data : undefined);
            setState((before) => ({ key, data: data(before), error: asApiError(error, key), isLoading: false }));
          }
        }
      }
      if (!stop.signal.aborted && (everyMs > 0 || document.hidden || !connection.peek().isUp)) {
        timer = window.setTimeout(run, everyMs || 1_000);
      }
    };
    void run();
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [key, round, everyMs, isWanted]);
  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : null,
    isLoading: isWanted && (!isCurrent || state.isLoading),
    reload: () => setRound((before) => before + 1),
  };
}
