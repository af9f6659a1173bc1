import { useMemo, useState } from "preact/hooks";
import { Attention } from "../fleet/attention";
import { countNodes, type Counts } from "../fleet/counts";
import { AlarmsPanel, useAlarms } from "../fleet/alarms";
import { FabricPanel, useFabric } from "../fleet/fabric-faults";
import { FailuresPanel, UnderWayPanel } from "../fleet/work";
import { SkuPanel, StateStrip, WaitsPanel } from "../fleet/panels";
import { GROUPS } from "../fleet/groups";
import { useNodes, type NodeStore } from "../fleet/store";
import { HeatMap, inWords } from "../parts/heat-map";
import { useView } from "../nodes/view";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { count, plural } from "../units";

export function FleetPage() {
  const store = useNodes("");
  const version = store.version.value;
  const counts = useMemo(() => countNodes(store.rows.values()), [store, version]);
  const alarms = useAlarms();
  const fabric = useFabric();
  const isKnown = store.isSynced.value;
  return (
    <>
      <PageHead title="Fleet">{isKnown ? subtitle(counts) : `Receiving nodes: ${count(counts.total)} so far`}</PageHead>
      <Problem error={store.error.value} doing="watch the nodes" retry={() => store.retry()} />
      {!isKnown && counts.total === 0 && store.error.value === null && <Loading what="the nodes" lines={6} />}
      {isKnown && counts.total === 0 && <NoNodes />}
      {counts.total > 0 && <StateStrip counts={counts} />}
      <div class="fleet-top">
        <Attention counts={counts} isKnown={isKnown} alarms={alarms} fabric={fabric} />
        {counts.total > 0 && <Hall store={store} version={version} counts={counts} />}
      </div>
      {counts.total > 0 && <SkuPanel counts={counts} />}
      <div class="columns-2">
        <div class="stack">
          <UnderWayPanel />
          <FailuresPanel />
        </div>
        <div class="stack">
          {counts.total > 0 && <WaitsPanel counts={counts} />}
          <AlarmsPanel alarms={alarms} />
          <FabricPanel fabric={fabric} />
        </div>
      </div>
      <AsCli commands={COMMANDS} />
    </>
  );
}

const COMMANDS = [
  "rackwright node list",
  "rackwright operation list --running",
  "rackwright power alarms",
  "rackwright fabric faults",
];

function subtitle({ total, skus, working }: Counts): string {
  const of = skus.size > 1 ? ` of ${plural(skus.size, "SKU")}` : "";
  return `${plural(total, "node")}${of}; ${working === 0 ? "no node changes its state" : `${plural(working, "node")} on the way to another state`}`;
}

const WHOLE = { health: "", waits: "", late: false };

/** Every node as a cell. */
function Hall({ store, version, counts }: { store: NodeStore; version: number; counts: Counts }) {
  const [group, setGroup] = useState("sku");
  const rows = useView(store, WHOLE, "node");
  const height = rows.length > 2_000 ? 340 : rows.length > 200 ? 240 : 90;
  return (
    <Panel
      title="Hall"
      side={
        <label>
          by{" "}
          <select value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
            {Object.entries(GROUPS).map(([key, { title }]) => (
              <option key={key} value={key}>
                {title}
              </option>
            ))}
          </select>
        </label>
      }
    >
      <HeatMap
        rows={rows}
        version={version}
        groupOf={GROUPS[group]?.of ?? null}
        height={height}
        label={`Nodes by state: ${inWords(counts.states)}`}
      />
    </Panel>
  );
}

function NoNodes() {
  return (
    <Empty title="No node is enrolled yet">
      <p>
        Enrol one with <code>rackwright node enroll</code>, many with <code>rackwright apply -f FILE</code>, or search
        the BMC network with <code>rackwright discover start</code>.
      </p>
    </Empty>
  );
}
