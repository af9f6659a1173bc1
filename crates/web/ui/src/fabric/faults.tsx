import type { FabricBreach, FabricFault, ListFabricFaultsResponse } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, NodeLink, ResourceLink } from "../parts/text";
import { stamp } from "../time";
import { count, plural } from "../units";
import type { Called } from "../use-call";

const MOST = 200;

/** Links that are broken, missing or slow, with both ends. */
export function FaultsPanel({ fabric, show }: { fabric: Called<ListFabricFaultsResponse>; show(fault: FabricFault): void }) {
  const { data } = fabric;
  const faults = data?.faults ?? [];
  const total = faults.length + (data?.more ?? 0);
  return (
    <Panel title="Faults of the cabling" id="faults" side={data?.checkTime && plural(total, "fault")} isFlush>
      <Problem error={fabric.error} doing="read the faults of the fabric" retry={fabric.reload} />
      {data === undefined && fabric.error === null && <Loading what="the faults of the fabric" />}
      {faults.length > 0 && (
        <Table
          caption="Faults of the cabling"
          rows={faults.slice(0, MOST)}
          keyOf={(fault) => fault.id ?? ""}
          columns={[
            { title: "fault", cell: ({ kind, fault }) => <StateBadge state={{ word: `${kind} ${fault}`, tone: "bad", key: "bad" }} /> },
            { title: "since", cell: ({ since }) => <Ago time={since} bare /> },
            { title: "cables", cell: ({ cables = [] }) => <span class="name">{cables.slice(0, 4).join(", ")}</span> },
            { title: "ends", isWide: true, cell: ({ ends = [] }) => ends.slice(0, 4).map(({ a, b }) => <div key={`${a} ${b}`} class="name">{`${a} - ${b}`}</div>) },
            { title: "clusters", isWide: true, cell: (fault) => <Concerned fault={fault} /> },
            { title: "what", isWide: true, cell: ({ text }) => text },
            {
              title: "picture",
              cell: (fault) => (
                <button type="button" class="link-button" onClick={() => show(fault)}>
                  show
                </button>
              ),
            },
          ]}
        />
      )}
      {data && <Checked data={data} total={total} />}
    </Panel>
  );
}

function Concerned({ fault: { clusters = [], countingClusters = [], nodes = [] } }: { fault: FabricFault }) {
  return (
    <>
      {clusters.map((name) => (
        <div key={name}>
          <ResourceLink name={name} shown={short("clusters", name)} />
          {countingClusters.includes(name) && <span class="dim"> counts on it</span>}
        </div>
      ))}
      {clusters.length === 0 && nodes.slice(0, 3).map((name) => <NodeLink key={name} id={short("nodes", name)} />)}
    </>
  );
}

function Checked({ data: { checkTime, problem, more = 0 }, total }: { data: ListFabricFaultsResponse; total: number }) {
  if (checkTime === undefined) {
    return (
      <Empty title="The state of the cables is unknown: the fabric was never compared with the site file">
        <p>
          This needs a fabric manager: the section <code>fabric</code> in <code>rackwrightd.yaml</code>. {problem}
        </p>
      </Empty>
    );
  }
  return (
    <p class="note dim">
      {total === 0 && "No fault is known. "}
      {more > 0 && `${plural(more, "further fault")} not listed. `}Compared with the site <Ago time={checkTime} />.{" "}
      {problem && <span class="bad-text">No comparison since then: {problem}.</span>}
    </p>
  );
}

/** Times in which ports could communicate outside of their cluster, or not within it. */
export function BreachesPanel({ fabric }: { fabric: Called<ListFabricFaultsResponse> }) {
  const { data } = fabric;
  const breaches = data?.breaches ?? [];
  if (data === undefined) {
    return null;
  }
  return (
    <Panel title="Breaches of isolation" side={breaches.length > 0 ? plural(breaches.length, "newest breach").replace("breachs", "breaches") : undefined} isFlush>
      {breaches.length > 0 && (
        <Table
          caption="Breaches of isolation, the newest first"
          rows={breaches}
          keyOf={(breach) => breach.id ?? ""}
          columns={[
            { title: "breach", cell: (breach) => <Kind breach={breach} /> },
            { title: "last good", isWide: true, cell: ({ goodTime }) => stamp(goodTime) },
            { title: "seen first", cell: ({ since }) => stamp(since) },
            { title: "until", cell: ({ endTime }) => (endTime ? stamp(endTime) : <span class="bad-text">open</span>) },
            { title: "ports", isNumber: true, cell: ({ ports, firstPorts = [] }) => <span title={firstPorts.join(", ")}>{count(Number(ports ?? 0))}</span> },
            { title: "clusters", isWide: true, cell: ({ clusters = [] }) => clusters.map((name) => <ResourceLink key={name} name={name} shown={`${short("clusters", name)} `} />) },
            { title: "what", cell: ({ text }) => text },
          ]}
        />
      )}
      {data.isolationCheckTime === undefined ? (
        <Empty title="The isolation is unknown: it was never checked between changes" />
      ) : (
        <p class="note dim">
          {breaches.length === 0 && "No breach is known. "}Checked <Ago time={data.isolationCheckTime} />.{" "}
          {data.isolationProblem && <span class="bad-text">The isolation is not checked: {data.isolationProblem}.</span>}
        </p>
      )}
    </Panel>
  );
}

function Kind({ breach: { kind, endTime } }: { breach: FabricBreach }) {
  return <StateBadge state={{ word: kind || "breach", tone: endTime ? "dim" : "bad", key: "breach" }} />;
}
