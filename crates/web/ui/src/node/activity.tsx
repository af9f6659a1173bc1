import type { Event, Operation } from "../api";
import { EventKind } from "../events/list";
import { useEvents } from "../events/stream";
import { last } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Bar, progressText } from "../parts/progress";
import { OperationBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, Copy, Dash } from "../parts/text";
import { duration, secondsBetween } from "../time";
import { plural } from "../units";
import { useCall } from "../use-call";
import type { NodeView } from "./view";

export function Activity({ of: { id } }: { of: NodeView }) {
  return (
    <div class="stack">
      <Operations target={`nodes/${id}`} />
      <Events target={`nodes/${id}`} />
    </div>
  );
}

function Operations({ target }: { target: string }) {
  const request = { pageSize: 100, filter: `target = "${target}"` };
  const { data, error, reload } = useCall("OperationService/ListOperations", request, { everyMs: 3_000 });
  const operations = data?.operations ?? [];
  return (
    <Panel title="Operations" side={data && plural(operations.length, "operation")} isFlush>
      <Problem error={error} doing="read the operations" retry={reload} />
      {data === undefined && error === null && <Loading what="the operations" />}
      {data !== undefined && operations.length === 0 && <Empty title="There was no operation on this node yet" />}
      {operations.length > 0 && (
        <Table
          caption="Operations, newest first"
          rows={operations}
          keyOf={(operation) => operation.name ?? ""}
          columns={[
            {
              title: "operation",
              isWide: true,
              cell: ({ name }) => <Copy text={last(name)} shown={last(name).slice(0, 8)} />,
            },
            { title: "kind", cell: ({ kind }) => kind },
            { title: "state", cell: (operation) => <OperationBadge operation={operation} /> },
            { title: "progress", cell: (operation) => <Done operation={operation} /> },
            {
              title: "step or fault",
              isText: true,
              cell: (operation) => operation.error?.message || progressText(operation) || <Dash />,
            },
            { title: "begun", cell: ({ createTime }) => <Ago time={createTime} /> },
            { title: "took", isWide: true, cell: (operation) => <Took operation={operation} /> },
            { title: "by", isWide: true, cell: ({ requestedBy }) => requestedBy },
          ]}
        />
      )}
    </Panel>
  );
}

function Took({ operation }: { operation: Operation }) {
  const seconds = secondsBetween(operation.createTime, operation.endTime);
  return seconds === null ? <Dash /> : <>{duration(seconds)}</>;
}

function Done({ operation }: { operation: Operation }) {
  if (operation.done || operation.progress === undefined) {
    return <Dash />;
  }
  return <Bar percent={operation.progress.percent ?? 0} label={`Progress of ${operation.kind}`} />;
}

function Events({ target }: { target: string }) {
  const followed = useEvents({ target });
  const [events, error] = [followed.list.value, followed.error.value];
  return (
    <Panel title="Events" side="live" isFlush>
      <Problem error={error} doing="follow the events" />
      {events.length === 0 && error === null && <Empty title="No event about this node is stored" />}
      {events.length > 0 && (
        <Table
          caption="Events, newest first"
          rows={events}
          keyOf={(event) => event.position ?? ""}
          columns={[
            { title: "when", cell: ({ time }) => <Ago time={time} /> },
            {
              title: "kind",
              cell: (event) => <EventKind event={event} />,
            },
            {
              title: "what",
              isText: true,
              cell: ({ message, attributes }) => <What message={message} attributes={attributes} />,
            },
            {
              title: "position",
              isNumber: true,
              isWide: true,
              cell: ({ position }) => <span class="dim">{position}</span>,
            },
          ]}
        />
      )}
    </Panel>
  );
}

function What({ message, attributes = {} }: Pick<Event, "message" | "attributes">) {
  const more = Object.entries(attributes)
    .map(([key, value]) => `${key}=${value}`)
    .sort();
  return (
    <>
      {message} <span class="dim small">{more.join(" ")}</span>
    </>
  );
}
