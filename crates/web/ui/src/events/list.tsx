import type { Event } from "../api";
import { short } from "../names";
import { Table } from "../parts/table";
import { Ago, ResourceLink } from "../parts/text";
import { eventTone } from "../words";
import { Glyph } from "../parts/state";

export function EventKind({ event }: { event: Event }) {
  const tone = eventTone(event);
  return (
    <span class="badge event-kind" data-tone={tone}>
      <Glyph tone={tone} />
      <span>{event.kind || "unknown"}</span>
    </span>
  );
}

function attributes(event: Event): string {
  return Object.entries(event.attributes ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .sort()
    .join(" ");
}

export function EventTable({ events, hasTarget, caption }: { events: Event[]; hasTarget: boolean; caption: string }) {
  const target = {
    title: "target",
    cell: (event: Event) => <ResourceLink name={event.target} shown={short("nodes", event.target)} />,
  };
  return (
    <Table
      caption={caption}
      rows={events}
      keyOf={(event) => event.position ?? ""}
      columns={[
        { title: "when", cell: ({ time }) => <Ago time={time} bare /> },
        { title: "kind", cell: (event) => <EventKind event={event} /> },
        ...(hasTarget ? [target] : []),
        {
          title: "what",
          cell: (event) => (
            <span class="event-text">
              {event.message} <span class="dim small">{attributes(event)}</span>
            </span>
          ),
        },
      ]}
    />
  );
}
