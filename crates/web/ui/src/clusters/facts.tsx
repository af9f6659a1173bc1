import type { Cluster } from "../api";
import { imageShort, labelsText, short } from "../names";
import { Facts, Panel } from "../parts/panel";
import { Bar } from "../parts/progress";
import { StateBadge } from "../parts/state";
import { Ago, Dash } from "../parts/text";
import { duration, everyHalfMinute } from "../time";
import { plural } from "../units";
import { handOverSeconds } from "./phases";
import { kilowatts, leaseText, listed, proof, rolloutText, standingsText, stateOf, wantedText } from "./words";

export function FactsPanel({ cluster, isOfSite }: { cluster: Cluster; isOfSite: boolean }) {
  const { spec, status, metadata } = cluster;
  const handOver = handOverSeconds(cluster);
  const leaving = (status?.leaving ?? []).map((node) => short("nodes", node));
  const deployment = spec?.deployment;
  return (
    <Panel title="Cluster">
      <Facts
        rows={[
          ["customer", spec?.customer || <Dash />],
          ["requested", wantedText(spec)],
          ["nodes", standingsText(status?.members ?? []) || <Dash />],
          ...(leaving.length > 0 ? ([["leaving", listed(leaving)]] as [string, string][]) : []),
          [
            "image",
            <>
              {deployment?.image ? (
                <a class="name" href="/images">
                  {imageShort(deployment.image)}
                </a>
              ) : (
                <Dash />
              )}
              <span class="dim">
                , {plural(deployment?.sshAuthorizedKeys?.length ?? 0, "SSH key")}
                {deployment?.hasUserData && ", user data"}
              </span>
            </>,
          ],
          ["partition", <Partition cluster={cluster} />],
          ...(isOfSite
            ? ([["network", status?.network || <span class="dim">not tested yet</span>]] as [
                string,
                preact.JSX.Element | string,
              ][])
            : []),
          ["power", `${kilowatts(status?.reservedWatts)} reserved`],
          ["lease", leaseText(cluster, everyHalfMinute.value)],
          ["requested at", <Ago time={metadata?.createTime} />],
          [
            "first ready",
            handOver === null ? (
              <span class="dim">
                {["reserved", "building", "validating"].includes(stateOf(cluster)) ? "not yet" : "unknown"}
              </span>
            ) : (
              `${duration(handOver)} after the request`
            ),
          ],
          ...(isOfSite
            ? ([["labels", labelsText(metadata?.labels) || <Dash />]] as [string, preact.JSX.Element | string][])
            : []),
        ]}
      />
    </Panel>
  );
}

function Partition({ cluster }: { cluster: Cluster }) {
  const { partition } = cluster.status ?? {};
  const { word, why } = proof(partition);
  if (!partition?.key) {
    return <span class="dim">none: no fabric manager is set up</span>;
  }
  return (
    <>
      <span class="name">{partition.key}</span> on {plural(partition.ports ?? 0, "port")} <StateBadge state={word} />{" "}
      {partition.provenTime && !partition.fault && (
        <span class="dim">
          every port was read with the right keys <Ago time={partition.provenTime} />
        </span>
      )}
      {why && <span class={partition.fault ? "bad-text" : "dim"}>{why}</span>}
    </>
  );
}

/** A reimage under way, or stopped. */
export function RolloutPanel({ cluster }: { cluster: Cluster }) {
  const status = cluster.status?.rollout;
  if (status === undefined || stateOf(cluster) !== "reimaging") {
    return null;
  }
  const { rollout, done = 0, of = 0, stopped } = status;
  const most = rollout?.maxUnavailable || 1;
  return (
    <Panel
      title={status.isBack ? "Return to the former image" : "Reimage"}
      side={<Bar percent={(done / Math.max(1, of)) * 100} label="nodes with the image" />}
    >
      <p>
        {rolloutText(status)}. At most {plural(most, "node")} at a time,{" "}
        {rollout?.anyLeaf ? "of any leaf" : "one leaf after the other"}; with more than{" "}
        {plural(rollout?.maxFailures ?? 0, "failed node")} it{" "}
        {rollout?.rollBack ? "returns to the former image" : "stops"}.
      </p>
      {stopped && (
        <p class="bad-text" role="status">
          Stopped: {stopped}
        </p>
      )}
    </Panel>
  );
}
