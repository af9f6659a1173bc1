import type { Cluster } from "../api";
import { CapacityPanel } from "../clusters/capacity";
import { useCustomers } from "../clusters/customers";
import { ClusterTable } from "../clusters/table";
import { useClusters } from "../clusters/use-clusters";
import { CLUSTER_STATES, stateOf } from "../clusters/words";
import { term } from "../fleet/filter";
import { Pick } from "../parts/form";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { link, location, setQuery } from "../router";
import { mayCall, ownCustomer } from "../roles";
import { shellWord } from "../names";
import { plural } from "../units";

export function ClustersPage() {
  const { query } = location.value;
  const [state, customer] = [query.get("state") ?? "", query.get("customer") ?? ""];
  const filter = [state && term("state", state), customer && term("customer", customer)].filter(Boolean).join(" AND ");
  const { data, error, reload } = useClusters(filter);
  const customers = useCustomers();
  const isOwn = ownCustomer() !== "";
  return (
    <>
      <PageHead title="Clusters" side={mayCall("ClusterService/CreateCluster") && <OrderLink customer={customer} />}>
        {data ? subtitle(data) : "Reading the clusters"}
      </PageHead>
      <div class="toolbar">
        <Pick
          label="state"
          value={state}
          set={(value) => setQuery({ state: value })}
          options={[["", "all"], ...CLUSTER_STATES.map((word): [string, string] => [word, word])]}
        />
        {!isOwn && (
          <Pick
            label="customer"
            value={customer}
            set={(value) => setQuery({ customer: value })}
            options={[["", "all"], ...withChosen(customers, customer)]}
          />
        )}
      </div>
      <Panel title="Clusters" isFlush>
        <Problem error={error} doing="list the clusters" retry={reload} />
        {data === undefined && error === null && <Loading what="the clusters" lines={6} />}
        {data !== undefined && data.length === 0 && <NoClusters isFiltered={filter !== ""} />}
        {data !== undefined && data.length > 0 && <ClusterTable clusters={sorted(data)} hasCustomer={!isOwn} />}
      </Panel>
      {(isOwn || customers.length > 0) && <Capacity customers={customers} chosen={customer} isOwn={isOwn} />}
      <AsCli
        commands={[
          filter === "" ? "rackwright cluster list" : `rackwright cluster list --filter ${shellWord(filter)}`,
          isOwn
            ? "rackwright capacity"
            : `rackwright capacity --customer ${shellWord(customer || customers[0] || "NAME")}`,
        ]}
      />
    </>
  );
}

function withChosen(customers: string[], chosen: string): [string, string][] {
  const all = chosen === "" || customers.includes(chosen) ? customers : [...customers, chosen];
  return all.map((name) => [name, name]);
}

/** Clusters that need attention first, released ones last. */
const ORDER = [
  "failed",
  "degraded",
  "reimaging",
  "resizing",
  "releasing",
  "building",
  "validating",
  "reserved",
  "ready",
  "unknown",
  "released",
];

function sorted(clusters: Cluster[]): Cluster[] {
  const rank = (cluster: Cluster) => ORDER.indexOf(stateOf(cluster));
  return [...clusters].sort((a, b) => rank(a) - rank(b) || ((a.name ?? "") < (b.name ?? "") ? -1 : 1));
}

function subtitle(clusters: Cluster[]): string {
  const counts = new Map<string, number>();
  clusters.forEach((cluster) => counts.set(stateOf(cluster), (counts.get(stateOf(cluster)) ?? 0) + 1));
  const parts = ORDER.filter((word) => counts.has(word)).map((word) => `${counts.get(word)} ${word}`);
  return [plural(clusters.length, "cluster"), parts.join(", ")].filter(Boolean).join(": ");
}

function OrderLink({ customer }: { customer: string }) {
  return (
    <a class="button primary" href={link("/clusters/new", { customer })}>
      Create a cluster
    </a>
  );
}

function Capacity({ customers, chosen, isOwn }: { customers: string[]; chosen: string; isOwn: boolean }) {
  const { query } = location.value;
  const customer = isOwn ? "" : query.get("capacity") || chosen || customers[0] || "";
  return (
    <div class="stack">
      {!isOwn && (
        <div class="toolbar">
          <Pick
            label="capacity for"
            value={customer}
            set={(value) => setQuery({ capacity: value })}
            options={withChosen(customers, customer)}
          />
        </div>
      )}
      <CapacityPanel customer={customer} />
    </div>
  );
}

function NoClusters({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) {
    return (
      <Empty title="No cluster matches">
        <p>
          <a href="/clusters">Show all clusters</a>
        </p>
      </Empty>
    );
  }
  return mayCall("ClusterService/CreateCluster") ? (
    <Empty title="There is no cluster yet">
      <p>
        <a href="/clusters/new">Create one</a>, or use <code>rackwright cluster create</code>.
      </p>
    </Empty>
  ) : (
    <Empty title="There is no cluster yet">
      <p>The site's operators create clusters. What fits now is shown below.</p>
    </Empty>
  );
}
