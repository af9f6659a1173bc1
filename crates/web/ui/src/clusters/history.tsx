import type { Cluster, ClusterMember } from "../api";
import { useState } from "preact/hooks";
import { short } from "../names";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { ClusterStateBadge, NodeStateBadge, StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Ago, Copy, Dash, NodeLink } from "../parts/text";
import { duration, protoSeconds } from "../time";
import { plural } from "../units";
import { memberStanding } from "../words";
import { edgeText } from "./words";

const SHOWN = 12;

/** Lost nodes and those with faults first, then those that the cluster waits for. */
function rank({ standing, reason }: ClusterMember): number {
  if (standing === "lost") {
    return 0;
  }
  return reason ? 1 : ["handed-over", "freed", "checked"].includes(standing ?? "") ? 3 : 2;
}

const WHY: Column<ClusterMember> = {
  title: "why",
  cell: ({ reason }) => reason && <span class="bad-text">{reason}</span>,
};

export function MembersPanel({ members }: { members: ClusterMember[] }) {
  const [isAll, setAll] = useState(false);
  const rows = [...members].sort((a, b) => rank(a) - rank(b) || ((a.node ?? "") < (b.node ?? "") ? -1 : 1));
  return (
    <Panel title="Nodes" side={plural(members.length, "node")} isFlush>
      {rows.length === 0 && <Empty title="The cluster has no nodes" />}
      {rows.length > 0 && (
        <Table
          caption="Nodes of the cluster"
          rows={isAll ? rows : rows.slice(0, SHOWN)}
          keyOf={({ node }) => node ?? ""}
          columns={[
            { title: "node", cell: ({ node }) => <NodeLink id={short("nodes", node)} /> },
            { title: "standing", cell: ({ standing }) => <StateBadge state={memberStanding(standing)} /> },
            { title: "state", isWide: true, cell: ({ state }) => <NodeStateBadge state={state} /> },
            { title: "role", isWide: true, cell: ({ spare }) => (spare ? "spare" : "in use") },
            { title: "address", isWide: true, cell: ({ address }) => (address ? <Copy text={address} /> : <Dash />) },
            ...(rows.some(({ reason }) => reason) ? [WHY] : []),
          ]}
        />
      )}
      {rows.length > SHOWN && (
        <div class="note">
          <Button kind="quiet" onClick={() => setAll(!isAll)}>
            {isAll ? `Show ${SHOWN}` : `Show all ${rows.length}`}
          </Button>
        </div>
      )}
    </Panel>
  );
}

export function HistoryPanel({ cluster }: { cluster: Cluster }) {
  const [isAll, setAll] = useState(false);
  const history = cluster.status?.history ?? [];
  return (
    <Panel title="History" isFlush>
      {history.length === 0 && <Empty title="No change of its state yet" />}
      {history.length > 0 && (
        <Table
          caption="Changes of the cluster's state, newest first"
          rows={isAll ? history : history.slice(0, SHOWN)}
          keyOf={({ time, edge }, index) => `${time} ${edge} ${index}`}
          columns={[
            { title: "when", cell: ({ time }) => <Ago time={time} bare /> },
            { title: "to", cell: ({ toState }) => <ClusterStateBadge state={toState} /> },
            {
              title: "what",
              cell: ({ edge, reason }) => (
                <>
                  {edgeText(edge)}
                  {reason && <span class="dim">: {reason}</span>}
                </>
              ),
            },
            {
              title: "after",
              isWide: true,
              cell: ({ timeInFormerState, fromState }) =>
                timeInFormerState && (
                  <span class="dim">{`${duration(protoSeconds(timeInFormerState))} ${(fromState ?? "").replace("CLUSTER_STATE_", "").toLowerCase()}`}</span>
                ),
            },
          ]}
        />
      )}
      {history.length > SHOWN && (
        <div class="note">
          <Button kind="quiet" onClick={() => setAll(!isAll)}>
            {isAll ? `Show ${SHOWN}` : `Show all ${history.length}`}
          </Button>
        </div>
      )}
    </Panel>
  );
}

export function ReplacedPanel({ cluster }: { cluster: Cluster }) {
  const replaced = [...(cluster.status?.replaced ?? [])].reverse();
  if (replaced.length === 0) {
    return null;
  }
  return (
    <Panel title="Replaced nodes" isFlush>
      <Table
        caption="Replaced nodes, newest first"
        rows={replaced}
        keyOf={({ node, time }) => `${node} ${time}`}
        columns={[
          { title: "when", cell: ({ time }) => <Ago time={time} bare /> },
          { title: "left", cell: ({ node }) => <NodeLink id={short("nodes", node)} /> },
          { title: "replaced by", cell: ({ by }) => <NodeLink id={short("nodes", by)} /> },
          { title: "why", cell: ({ reason }) => reason },
        ]}
      />
    </Panel>
  );
}
