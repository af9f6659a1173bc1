import { useState } from "preact/hooks";
import type { Event } from "../api";
import { EventTable } from "../events/list";
import { useEvents } from "../events/stream";
import { Button } from "../parts/button";
import { Pick } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { location, setQuery } from "../router";
import { count, plural } from "../units";
import { eventTone } from "../words";
import { TargetBox } from "./operations";

const SHOWN = 200;

/** `security`, `cluster`; changes of a node's state have no dot. */
function familyOf(kind: string | undefined): string {
  const at = (kind ?? "").indexOf(".");
  return at < 0 ? "change of state" : (kind ?? "").slice(0, at);
}

function isShown(event: Event, family: string, isBad: boolean, text: string): boolean {
  return (
    (family === "" || familyOf(event.kind) === family) &&
    (!isBad || eventTone(event.kind ?? "") === "bad") &&
    (text === "" || `${event.kind} ${event.target} ${event.message}`.toLowerCase().includes(text))
  );
}

/** Events as they happen. The picture stands still while it is paused; nothing is lost meanwhile. */
export function LiveEvents() {
  const { query } = location.value;
  const target = query.get("target") ?? "";
  // The API reads from the oldest event or from now on: all events of a site may be millions.
  const events = useEvents(target, target === "");
  const [held, setHeld] = useState<Event[] | null>(null);
  const live = events.list.value;
  const list = held ?? live;
  const family = query.get("family") ?? "";
  const isBad = query.get("severity") === "bad";
  const text = (query.get("text") ?? "").toLowerCase();
  const shown = list.filter((event) => isShown(event, family, isBad, text));
  const families = [...new Set([...live.map(({ kind }) => familyOf(kind)), family])].filter(Boolean).sort();
  const heldAt = Number(held?.[0]?.position ?? 0);
  const waiting = held === null ? 0 : live.filter(({ position }) => Number(position) > heldAt).length;
  return (
    <>
      <Filters families={families} />
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
            title={list.length === 0 ? "Waiting for the next event" : `None of ${plural(list.length, "event")} matches`}
          >
            {list.length === 0 && (
              <p>
                Events from before this page was opened: <code>rackwright events</code>, or give a target above.
              </p>
            )}
          </Empty>
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

function Filters({ families }: { families: string[] }) {
  const { query } = location.value;
  const family = query.get("family") ?? "";
  const isBad = query.get("severity") === "bad";
  return (
    <div class="toolbar">
      <Pick
        label="kind"
        value={family}
        set={(value) => setQuery({ family: value })}
        options={[["", "all"], ...families.map((word): [string, string] => [word, word])]}
      />
      <Pick
        label="show"
        value={isBad ? "bad" : ""}
        set={(value) => setQuery({ severity: value })}
        options={[
          ["", "everything"],
          ["bad", "failures and security"],
        ]}
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
