import type { Operation } from "../api";
import { change } from "../client";
import { last, short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { Bar, progressText } from "../parts/progress";
import { OperationBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Ago, Dash, ResourceLink } from "../parts/text";
import { mayCall, whyNotCall } from "../roles";
import { duration, secondsBetween } from "../time";

/** Operations, one a line, with what became of each. */
export function OperationTable({
  operations,
  hasTarget,
  changed,
}: {
  operations: Operation[];
  hasTarget: boolean;
  changed(): void;
}) {
  const target: Column<Operation> = {
    title: "target",
    cell: (operation) => <ResourceLink name={operation.target} shown={short("nodes", operation.target)} />,
  };
  const cancel: Column<Operation> = {
    title: "actions",
    cell: (operation) => <Cancel operation={operation} changed={changed} />,
  };
  return (
    <Table
      caption="Operations, newest first"
      rows={operations}
      keyOf={({ name }) => name ?? ""}
      columns={[
        { title: "kind", cell: ({ kind, name }) => <span title={last(name)}>{kind}</span> },
        ...(hasTarget ? [target] : []),
        { title: "state", cell: (operation) => <State operation={operation} /> },
        { title: "step, or why", cell: (operation) => <Step operation={operation} /> },
        { title: "age", cell: ({ createTime }) => <Ago time={createTime} bare /> },
        { title: "took", isWide: true, cell: (operation) => <Took operation={operation} /> },
        { title: "by", isWide: true, cell: ({ requestedBy }) => requestedBy || <Dash /> },
        ...(mayCall("OperationService/CancelOperation") ? [cancel] : []),
      ]}
    />
  );
}

function State({ operation }: { operation: Operation }) {
  const { done, progress } = operation;
  return (
    <span class="ready">
      <OperationBadge operation={operation} />
      {!done && progress && <Bar percent={progress.percent ?? 0} label={`${operation.kind} of ${operation.target}`} />}
    </span>
  );
}

function Step({ operation }: { operation: Operation }) {
  const { error, done } = operation;
  if (error) {
    return <span class={error.code === 1 ? "dim" : "bad-text"}>{error.message}</span>;
  }
  return <span class={done ? "dim" : undefined}>{done ? "" : progressText(operation)}</span>;
}

function Took({ operation: { createTime, endTime } }: { operation: Operation }) {
  const seconds = secondsBetween(createTime, endTime);
  return seconds === null ? <Dash /> : <>{duration(seconds)}</>;
}

function Cancel({ operation, changed }: { operation: Operation; changed(): void }) {
  if (operation.done) {
    return null;
  }
  const why =
    whyNotCall("OperationService/CancelOperation") || (operation.cancelRequested ? "It is being cancelled" : "");
  const open = () =>
    openDialog((close) => (
      <ConfirmDialog
        title={`Cancel the ${operation.kind}`}
        close={close}
        effect={`The ${operation.kind} of ${short("nodes", operation.target)} is ended. Work that runs on a machine is first brought to a safe state.`}
        isDanger
        commands={[`rackwright operation cancel ${last(operation.name)}`]}
        send={() => change("OperationService/CancelOperation", { name: operation.name })}
        done={changed}
      />
    ));
  return (
    <Button kind="quiet" why={why} onClick={open}>
      Cancel
    </Button>
  );
}
