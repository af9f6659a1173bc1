import type { Alarm, ListAlarmsResponse, ReadingCoverage } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, NodeLink, ResourceLink } from "../parts/text";
import { count } from "../units";
import { useCall, type Called } from "../use-call";
import { severity } from "../words";

const SHOWN_NODES = 4;

export function useAlarms(): Called<ListAlarmsResponse> {
  return useCall("PowerService/ListAlarms", { pageSize: 1_000 }, { everyMs: 10_000 });
}

/** The worst first, and among these the newest. */
function sorted(alarms: Alarm[]): Alarm[] {
  const rank = (alarm: Alarm) => (alarm.severity === "critical" ? 0 : 1);
  return [...alarms].sort((a, b) => rank(a) - rank(b) || (b.openTime ?? "").localeCompare(a.openTime ?? ""));
}

export function AlarmsPanel({ alarms }: { alarms: Called<ListAlarmsResponse> }) {
  const list = sorted(alarms.data?.alarms ?? []);
  return (
    <Panel title="Alarms of power and cooling" id="alarms" isFlush>
      <Problem error={alarms.error} doing="read the alarms" retry={alarms.reload} />
      {alarms.data === undefined && alarms.error === null && <Loading what="the alarms" />}
      {list.length > 0 && (
        <Table
          caption="Open alarms"
          rows={list}
          keyOf={(alarm) => alarm.name ?? ""}
          columns={[
            { title: "severity", cell: (alarm) => <StateBadge state={severity(alarm.severity)} /> },
            {
              title: "subject",
              isText: true,
              cell: (alarm) => <ResourceLink name={alarm.subject} shown={short("nodes", alarm.subject)} />,
            },
            { title: "what and what to do", isText: true, cell: (alarm) => <What alarm={alarm} /> },
            { title: "since", cell: (alarm) => <Ago time={alarm.openTime} bare /> },
          ]}
        />
      )}
      {alarms.data !== undefined && <Coverage coverage={alarms.data.coverage ?? []} isEmpty={list.length === 0} />}
    </Panel>
  );
}

function What({ alarm }: { alarm: Alarm }) {
  const nodes = alarm.nodes ?? [];
  const effects = [alarm.blocks ? "not switched on" : "", alarm.cordons ? "not given to new clusters" : ""].filter(
    Boolean,
  );
  return (
    <>
      {alarm.message} <span class="dim">{alarm.advice}</span>
      {(alarm.nodeCount ?? 0) > 0 && effects.length > 0 && (
        <p class="small">
          {count(alarm.nodeCount ?? 0)} {alarm.nodeCount === 1 ? "node is" : "nodes are"} {effects.join(", and ")}:{" "}
          {nodes.slice(0, SHOWN_NODES).map((name, index) => (
            <span key={name}>
              {index > 0 && ", "}
              <NodeLink id={short("nodes", name)} />
            </span>
          ))}
          {(alarm.nodeCount ?? 0) > SHOWN_NODES && " and more"}
        </p>
      )}
    </>
  );
}

/** Equipment that is not read has no alarms, whatever its state: this says so. */
function Coverage({ coverage, isEmpty }: { coverage: ReadingCoverage[]; isEmpty: boolean }) {
  const read = coverage.filter(({ read: some }) => (some ?? 0) > 0);
  if (read.length === 0) {
    return (
      <Empty
        title={
          isEmpty ? "The state of power and cooling is unknown: no device is read" : "No device is read at the moment"
        }
      >
        <p>
          The section <code>facility</code> in <code>rackwrightd.yaml</code> turns readings on.
        </p>
      </Empty>
    );
  }
  const parts = coverage.map(
    ({ kind, read: some, known }) =>
      `${count(some ?? 0)} of ${count(known ?? 0)} ${kind === "pdu" ? "PDUs" : kind === "cooling" ? "cooling units" : "nodes"}`,
  );
  return (
    <p class="note dim">
      {isEmpty ? "No alarm is open. " : ""}Read: {parts.join(", ")}.
    </p>
  );
}
