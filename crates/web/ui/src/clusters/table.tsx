import type { Cluster } from "../api";
import { Bar } from "../parts/progress";
import { ClusterStateBadge, StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Ago, Dash, Until } from "../parts/text";
import { count } from "../units";
import { nameOf, proof, stateOf, wantedNodes } from "./words";

export function ClusterLink({ cluster }: { cluster: Cluster }) {
  const name = nameOf(cluster);
  return (
    <a class="name" href={`/clusters/${encodeURIComponent(name)}`}>
      {name}
    </a>
  );
}

function Nodes({ cluster }: { cluster: Cluster }) {
  const all = wantedNodes(cluster);
  const ready = cluster.status?.readyNodes ?? 0;
  const state = stateOf(cluster);
  if (state === "released") {
    return <Dash />;
  }
  return (
    <span class="ready">
      {count(ready)} of {count(all)}
      {["building", "validating", "resizing", "reimaging"].includes(state) && (
        <Bar percent={(ready / Math.max(1, all)) * 100} label={`nodes of ${nameOf(cluster)} in use`} />
      )}
    </span>
  );
}

function Lease({ cluster }: { cluster: Cluster }) {
  const isOver = ["releasing", "released"].includes(stateOf(cluster));
  const end = cluster.spec?.leaseEnd;
  return isOver || end === undefined ? <Dash /> : <Until time={end} />;
}

function Fabric({ cluster }: { cluster: Cluster }) {
  const { partition } = cluster.status ?? {};
  return partition?.key ? (
    <>
      <span class="name">{partition.key}</span> <StateBadge state={proof(partition).word} />
    </>
  ) : (
    <Dash />
  );
}

function Why({ cluster: { status } }: { cluster: Cluster }) {
  return status?.reason ? <span class="bad-text">{status.reason}</span> : <>{status?.waitingFor}</>;
}

/** On a phone the reason is below the name. */
function Name({ cluster }: { cluster: Cluster }) {
  return (
    <>
      <ClusterLink cluster={cluster} />
      <span class="narrow-only small">
        <Why cluster={cluster} />
      </span>
    </>
  );
}

/** A name, which is not broken at its hyphens. */
const named = (name = "") => (name === "" ? <Dash /> : <span class="name">{name}</span>);

/** Clusters, one a line. Without the customer where all belong to one. */
export function ClusterTable({ clusters, hasCustomer }: { clusters: Cluster[]; hasCustomer: boolean }) {
  const customer: Column<Cluster> = { title: "customer", isWide: true, cell: ({ spec }) => named(spec?.customer) };
  return (
    <Table
      caption="Clusters"
      rows={clusters}
      keyOf={(cluster) => cluster.name ?? ""}
      columns={[
        { title: "cluster", cell: (cluster) => <Name cluster={cluster} /> },
        { title: "state", cell: ({ status }) => <ClusterStateBadge state={status?.state} /> },
        { title: "since", isWide: true, cell: ({ status }) => <Ago time={status?.stateSince} bare /> },
        ...(hasCustomer ? [customer] : []),
        { title: "SKU", isWide: true, cell: ({ spec }) => named(spec?.sku) },
        { title: "nodes in use", cell: (cluster) => <Nodes cluster={cluster} /> },
        { title: "partition", isWide: true, cell: (cluster) => <Fabric cluster={cluster} /> },
        { title: "lease ends", isWide: true, cell: (cluster) => <Lease cluster={cluster} /> },
        { title: "waits for, or why", isWide: true, cell: (cluster) => <Why cluster={cluster} /> },
      ]}
    />
  );
}
