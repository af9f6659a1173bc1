import { useState } from "preact/hooks";
import type { Event, EventSeverity } from "../api";
import { EventTable } from "../events/list";
import { useEvents, type Wanted } from "../events/stream";
import { shellWord } from "../names";
import { Button } from "../parts/button";
import { Pick } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { location, setQuery } from "../router";
import { count, plural } from "../units";
import { TargetBox } from "./operations";

const SHOWN = 200;

/** Beginnings of kinds. Changes of a node's state have none. */
const FAMILIES = [
  "bmc",
  "boot",
  "cluster",
  "drives",
  "effect",
  "ethernet",
  "fabric",
  "facility",
  "firmware",
  "image",
  "node",
  "power",
  "security",
  "validation",
];
const SEVERITIES: [string, string][] = [
  ["", "everything"],
  ["EVENT_SEVERITY_WARNING", "warnings and errors"],
  ["EVENT_SEVERITY_ERROR", "errors"],
];

/** What the address asks for. */
function wantedOf(query: URLSearchParams): Wanted {
  const family = query.get("family") ?? "";
  const severity = SEVERITIES.find(([value]) => value !== "" && value === query.get("severity"));
  return {
    target: query.get("target") ?? "",
    ...(family !== "" && { kinds: [`${family}.*`] }),
    ...(severity && { minSeverity: severity[0] as EventSeverity }),
  };
}

/** The command that shows the same events. */
export function eventsCommand(query: URLSearchParams): string {
  const { target, kinds, minSeverity } = wantedOf(query);
  const severity = (minSeverity ?? "").replace("EVENT_SEVERITY_", "").toLowerCase();
  return [
    "rackwright events --follow --tail 200",
    target && `--target ${shellWord(target)}`,
    kinds && `--kind ${shellWord(kinds.join(","))}`,
    severity && `--severity ${severity}`,
  ]
    .filter(Boolean)
    .join(" ");
}

/** Events as they happen. The picture stands still while it is paused; nothing is lost meanwhile. */
export function LiveEvents() {
  const { query } = location.value;
  const events = useEvents(wantedOf(query));
  const [held, setHeld] = useState<Event[] | null>(null);
  const live = events.list.value;
  const list = held ?? live;
  const text = (query.get("text") ?? "").toLowerCase();
  const shown = list.filter((event) => `${event.kind} ${event.target} ${event.message}`.toLowerCase().includes(text));
  const heldAt = Number(held?.[0]?.position ?? 0);
  const waiting = held === null ? 0 : live.filter(({ position }) => Number(position) > heldAt).length;
  return (
    <>
      <Filters />
      <Panel
        title="Events"
        side={
          <>
            <span class="badge" data-tone={held === null ? "good" : "dim"} role="status">
              <Glyph tone={held === null ? "good" : "dim"} />
              <span>{held === null ? "live" : `paused, ${count(waiting)} newer`}</span>
            </span>
            <Button onClick={() => setHeld(held === null ? live : null)}>{held === null ? "Pause" : "Go on"}</Button>
          </>
        }
        isFlush
      >
        <Problem error={events.error.value} doing="follow the events" retry={events.retry} />
        {shown.length === 0 && events.error.value === null && (
          <Empty
            title={list.length === 0 ? "No such event is stored" : `None of ${plural(list.length, "event")} matches`}
          />
        )}
        {shown.length > 0 && <EventTable events={shown.slice(0, SHOWN)} hasTarget caption="Events, newest first" />}
        {shown.length > SHOWN && (
          <p class="note dim">
            The newest {SHOWN} of {plural(shown.length, "event")}.
          </p>
        )}
      </Panel>
    </>
  );
}

function Filters() {
  const { query } = location.value;
  return (
    <div class="toolbar">
      <Pick
        label="kind"
        value={query.get("family") ?? ""}
        set={(value) => setQuery({ family: value })}
        options={[["", "all"], ...FAMILIES.map((word): [string, string] => [word, word])]}
      />
      <Pick
        label="show"
        value={query.get("severity") ?? ""}
        set={(value) => setQuery({ severity: value })}
        options={SEVERITIES}
      />
      <label class="choice">
        text{" "}
        <input
          type="text"
          spellcheck={false}
          autocomplete="off"
          value={query.get("text") ?? ""}
          onInput={(event) => setQuery({ text: event.currentTarget.value })}
        />
      </label>
      <TargetBox target={query.get("target") ?? ""} />
    </div>
  );
}
