import type { FabricBreach, ListFabricFaultsResponse } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, ResourceLink } from "../parts/text";
import { plural } from "../units";
import { useCall, type Called } from "../use-call";

const SHOWN = 6;

export function useFabric(): Called<ListFabricFaultsResponse> {
  return useCall("SiteService/ListFabricFaults", {}, { everyMs: 20_000 });
}

/** Breaches of isolation, open ones first, and faults of links. */
export function FabricPanel({ fabric }: { fabric: Called<ListFabricFaultsResponse> }) {
  const { data } = fabric;
  const breaches = [...(data?.breaches ?? [])].sort(
    (a, b) => Number(a.endTime !== undefined) - Number(b.endTime !== undefined),
  );
  const faults = data?.faults ?? [];
  return (
    <Panel title="Isolation and links of the fabric" id="fabric" isFlush>
      <Problem error={fabric.error} doing="read the faults of the fabric" retry={fabric.reload} />
      {data === undefined && fabric.error === null && <Loading what="the faults of the fabric" />}
      {breaches.length > 0 && <Breaches breaches={breaches.slice(0, SHOWN)} />}
      {faults.length > 0 && (
        <Table
          caption="Faults of links"
          rows={faults.slice(0, SHOWN)}
          keyOf={(fault) => fault.id ?? ""}
          columns={[
            {
              title: "fault",
              cell: (fault) => <StateBadge state={{ word: fault.fault || "fault", tone: "busy", key: "busy" }} />,
            },
            { title: "where", cell: (fault) => fault.text },
            { title: "clusters", isWide: true, cell: (fault) => <Clusters names={fault.clusters ?? []} /> },
            { title: "since", cell: (fault) => <Ago time={fault.since} bare /> },
          ]}
        />
      )}
      {data && <Checked data={data} isEmpty={breaches.length + faults.length === 0} />}
    </Panel>
  );
}

function Breaches({ breaches }: { breaches: FabricBreach[] }) {
  return (
    <Table
      caption="Breaches of isolation"
      rows={breaches}
      keyOf={(breach) => breach.id ?? ""}
      columns={[
        {
          title: "breach",
          cell: ({ endTime }) => (
            <StateBadge
              state={endTime ? { word: "ended", tone: "dim", key: "dim" } : { word: "open", tone: "bad", key: "bad" }}
            />
          ),
        },
        { title: "what", cell: ({ text, kind }) => text || kind },
        { title: "clusters", isWide: true, cell: ({ clusters }) => <Clusters names={clusters ?? []} /> },
        { title: "since", cell: ({ since }) => <Ago time={since} bare /> },
      ]}
    />
  );
}

function Clusters({ names }: { names: string[] }) {
  return (
    <>
      {names.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <ResourceLink name={name} shown={short("clusters", name)} />
        </span>
      ))}
    </>
  );
}

function Checked({ data, isEmpty }: { data: ListFabricFaultsResponse; isEmpty: boolean }) {
  const { checkTime, isolationCheckTime, problem, isolationProblem } = data;
  const more = Math.max(0, (data.faults?.length ?? 0) - SHOWN) + (data.more ?? 0);
  if (checkTime === undefined && isolationCheckTime === undefined) {
    return (
      <Empty title="The state of the fabric is unknown: it was never checked">
        <p>A check needs an applied site and a fabric manager. {problem || isolationProblem}</p>
      </Empty>
    );
  }
  return (
    <p class="note dim">
      {isEmpty && "No fault and no breach is known. "}
      {more > 0 && `${plural(more, "further fault")}. `}
      Links were checked <Ago time={checkTime} />, isolation <Ago time={isolationCheckTime} />.{" "}
      {problem && <span class="bad-text">Later checks of links failed: {problem}. </span>}
      {isolationProblem && <span class="bad-text">Later checks of the isolation failed: {isolationProblem}.</span>}
    </p>
  );
}
