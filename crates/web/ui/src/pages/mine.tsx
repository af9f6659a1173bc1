import { useMemo } from "preact/hooks";
import { OperationTable } from "../activity/operation-table";
import { CapacityPanel } from "../clusters/capacity";
import { ClusterTable } from "../clusters/table";
import { useClusters } from "../clusters/use-clusters";
import { EventTable } from "../events/list";
import { useEvents } from "../events/stream";
import { countNodes } from "../fleet/counts";
import { StateStrip } from "../fleet/panels";
import { useNodes } from "../fleet/store";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { ownCustomer } from "../roles";
import { count, plural } from "../units";
import { useCall } from "../use-call";

const SHOWN = 12;

/** The home page of a customer's members: what is theirs, what changed, and what they can have. */
export function MinePage() {
  const store = useNodes("");
  const version = store.version.value;
  const counts = useMemo(() => countNodes(store.rows.values()), [store, version]);
  const clusters = useClusters("state != released");
  const list = clusters.data ?? [];
  const nodes = store.isSynced.value ? plural(counts.total, "node") : `${count(counts.total)} nodes so far`;
  return (
    <>
      <PageHead title={ownCustomer()}>
        {clusters.data ? `${plural(list.length, "cluster")}, ${nodes}` : "Reading what is yours"}
      </PageHead>
      <Problem error={store.error.value} doing="watch the nodes" retry={() => store.retry()} />
      {counts.total > 0 && <StateStrip counts={counts} />}
      <Panel title="Your clusters" side={<a href="/clusters">All clusters</a>} isFlush>
        <Problem error={clusters.error} doing="list the clusters" retry={clusters.reload} />
        {clusters.data === undefined && clusters.error === null && <Loading what="the clusters" />}
        {clusters.data !== undefined && list.length === 0 && (
          <Empty title="You have no cluster at the moment">
            <p>The site's operators create clusters. What fits now is shown below.</p>
          </Empty>
        )}
        {list.length > 0 && <ClusterTable clusters={list} hasCustomer={false} />}
      </Panel>
      <CapacityPanel customer="" />
      <ChangesPanel />
      <AsCli
        commands={[
          "rackwright cluster list",
          "rackwright node list",
          "rackwright capacity",
          "rackwright operation list",
        ]}
      />
    </>
  );
}

/** The newest operations and events. */
function ChangesPanel() {
  const { data, error, reload } = useCall("OperationService/ListOperations", { pageSize: SHOWN }, { everyMs: 5_000 });
  const events = useEvents({});
  const operations = data?.operations ?? [];
  const seen = events.list.value;
  return (
    <>
      <Panel title="What changed" side={<a href="/activity">All activity</a>} isFlush>
        <Problem error={error} doing="read the operations" retry={reload} />
        {data === undefined && error === null && <Loading what="the operations" />}
        {data !== undefined && operations.length === 0 && (
          <Empty title="Nothing was requested for your nodes and clusters yet" />
        )}
        {operations.length > 0 && <OperationTable operations={operations} hasTarget changed={reload} />}
      </Panel>
      {seen.length > 0 && (
        <Panel title="Events" isFlush>
          <EventTable events={seen.slice(0, SHOWN)} hasTarget caption="Events, newest first" />
        </Panel>
      )}
    </>
  );
}
