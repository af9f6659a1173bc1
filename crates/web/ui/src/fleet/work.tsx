import type { Operation } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Bar, progressText } from "../parts/progress";
import { OperationBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, ResourceLink } from "../parts/text";
import { plural } from "../units";
import { useCall } from "../use-call";
import { operationState } from "../words";

const SHOWN = 8;
/** Done operations that are searched for failures: the API has no filter for them. */
const SEARCHED = 300;

export function Target({ operation }: { operation: Operation }) {
  return <ResourceLink name={operation.target} shown={short("nodes", operation.target)} />;
}

/** Operations that are not done. */
export function UnderWayPanel() {
  const { data, error, reload } = useCall(
    "OperationService/ListOperations",
    { pageSize: 1_000, filter: "done = false" },
    { everyMs: 3_000 },
  );
  const all = data?.operations ?? [];
  const number = `${plural(all.length, "operation")}${data?.nextPageToken ? " or more" : ""}`;
  return (
    <Panel title="Under way" side={data && number} isFlush>
      <Problem error={error} doing="read the operations" retry={reload} />
      {data === undefined && error === null && <Loading what="the operations" />}
      {data !== undefined && all.length === 0 && <Empty title="No operation is under way" />}
      {all.length > 0 && (
        <Table
          caption="Operations under way"
          rows={all.slice(0, SHOWN)}
          keyOf={(operation) => operation.name ?? ""}
          columns={[
            { title: "target", cell: (operation) => <Target operation={operation} /> },
            { title: "kind", cell: ({ kind }) => kind },
            { title: "progress", cell: (operation) => <Advance operation={operation} /> },
            { title: "age", cell: ({ createTime }) => <Ago time={createTime} bare /> },
            { title: "by", isWide: true, cell: ({ requestedBy }) => requestedBy },
          ]}
        />
      )}
      {all.length > SHOWN && <p class="note dim">{plural(all.length - SHOWN, "further operation")}</p>}
    </Panel>
  );
}

function Advance({ operation }: { operation: Operation }) {
  const { progress, kind, target } = operation;
  if (progress === undefined) {
    return <OperationBadge operation={operation} />;
  }
  return (
    <>
      <Bar percent={progress.percent ?? 0} label={`${kind} of ${target}`} />
      <p class="dim small one-line" title={progressText(operation)}>
        {progressText(operation)}
      </p>
    </>
  );
}

/** The newest operations that failed. */
export function FailuresPanel() {
  const { data, error, reload } = useCall(
    "OperationService/ListOperations",
    { pageSize: SEARCHED, filter: "done = true" },
    { everyMs: 15_000 },
  );
  const failed = (data?.operations ?? []).filter((operation) => operationState(operation).word === "failed");
  return (
    <Panel
      title="Last failures"
      side={data && `in the last ${plural(data.operations?.length ?? 0, "operation")}`}
      isFlush
    >
      <Problem error={error} doing="read the operations" retry={reload} />
      {data === undefined && error === null && <Loading what="the failures" />}
      {data !== undefined && failed.length === 0 && <Empty title="None of the last operations failed" />}
      {failed.length > 0 && (
        <Table
          caption="Operations that failed"
          rows={failed.slice(0, SHOWN)}
          keyOf={(operation) => operation.name ?? ""}
          columns={[
            { title: "target", cell: (operation) => <Target operation={operation} /> },
            { title: "kind", cell: ({ kind }) => kind },
            { title: "why", isText: true, cell: (operation) => operation.error?.message },
            { title: "when", cell: ({ endTime }) => <Ago time={endTime} bare /> },
          ]}
        />
      )}
    </Panel>
  );
}
