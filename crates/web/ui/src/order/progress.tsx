import type { Operation } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Problem } from "../parts/problem";
import { Bar, progressText } from "../parts/progress";
import { ClusterStateBadge, OperationBadge } from "../parts/state";
import { useCall } from "../use-call";

const POLL_MS = 2_000;

/** The way of an ordered cluster to its hand-over. */
export function OrderProgress({ started }: { started: Operation }) {
  const cluster = useCall("ClusterService/GetCluster", { name: started.target }, { everyMs: POLL_MS });
  const called = useCall("OperationService/GetOperation", { name: started.name }, { everyMs: POLL_MS });
  const operation = called.data ?? started;
  const name = short("clusters", started.target);
  const { state, waitingFor } = cluster.data?.status ?? {};
  return (
    <Panel title={`Cluster ${name} is ordered`} side={<ClusterStateBadge state={state} />}>
      <p role="status">
        <OperationBadge operation={operation} />{" "}
        {!operation.done && <Bar percent={operation.progress?.percent ?? 0} label={`building ${name}`} />}{" "}
        {progressText(operation)}
      </p>
      {waitingFor && <p class="dim">It waits for {waitingFor}.</p>}
      {operation.error && <p class="bad-text">{operation.error.message}</p>}
      <Problem error={called.error ?? cluster.error} doing="read the progress" />
      <p>
        Nodes, links, power, cooling and the partition key are reserved. The work goes on without this page:{" "}
        <a href={`/clusters/${encodeURIComponent(name)}`}>go to {name}</a>.
      </p>
    </Panel>
  );
}
