import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Event, EventSeverity } from "../api";
import { follow } from "../client";
import type { ApiError } from "../errors";

/** Events that are kept in the browser. */
const KEPT = 1_000;
const DRAW_MS = 150;

export interface Events {
  /** Newest first. */
  list: Signal<Event[]>;
  error: Signal<ApiError | null>;
  isFollowing: Signal<boolean>;
  retry(): void;
}

/** Which events; without a field: all. */
export interface Wanted {
  target?: string;
  kinds?: string[];
  minSeverity?: EventSeverity;
}

/** The newest stored events that are wanted, and each new one as it happens. */
export function useEvents(wanted: Wanted): Events {
  const key = JSON.stringify(wanted);
  const [round, setRound] = useState(0);
  const events = useMemo(
    () => ({
      list: signal<Event[]>([]),
      error: signal<ApiError | null>(null),
      isFollowing: signal(false),
      retry: () => setRound((before) => before + 1),
    }),
    [key],
  );
  useEffect(() => {
    const stop = new AbortController();
    let position = "";
    let fresh: Event[] = [];
    let drawing: number | undefined;
    const draw = () => {
      drawing = undefined;
      events.list.value = [...fresh.reverse(), ...events.list.peek()].slice(0, KEPT);
      fresh = [];
    };
    events.error.value = null;
    events.list.value = [];
    void follow(
      "EventService/StreamEvents",
      () => (position === "" ? { ...wanted, newest: KEPT } : { ...wanted, afterPosition: position }),
      {
        begin: () => {
          events.isFollowing.value = true;
        },
        message: (event) => {
          position = event.position ?? position;
          fresh.push(event);
          if (fresh.length > KEPT) {
            fresh = fresh.slice(-KEPT);
          }
        },
        drained: () => {
          if (fresh.length > 0) {
            drawing ??= window.setTimeout(draw, DRAW_MS);
          }
        },
        failed: (error) => {
          events.error.value = error;
          events.isFollowing.value = false;
        },
      },
      stop.signal,
    );
    return () => {
      stop.abort();
      window.clearTimeout(drawing);
    };
  }, [events, round]);
  return events;
}
