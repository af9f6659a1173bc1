import { useEffect } from "preact/hooks";
import type { Cluster } from "../api";
import { call } from "../client";
import { OperationsPanel } from "../activity/operations-panel";
import { ClusterActions } from "../clusters/actions";
import { FactsPanel, RolloutPanel } from "../clusters/facts";
import { hints } from "../clusters/hints";
import { HistoryPanel, MembersPanel, ReplacedPanel } from "../clusters/history";
import { PackPanel } from "../clusters/pack";
import { Phases } from "../clusters/phases";
import { PlacementPanel } from "../clusters/picture";
import { stateOf, wantedText } from "../clusters/words";
import { EventTable } from "../events/list";
import { useEvents, type Events } from "../events/stream";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Prose } from "../parts/prose";
import { ClusterStateBadge } from "../parts/state";
import type { PageProps } from "../routes";
import { isOfSite } from "../session";
import { everyHalfMinute } from "../time";
import { useCall, useWork } from "../use-call";

const POLL_MS = 5_000;
const SHOWN_EVENTS = 30;

export function ClusterPage({ params }: PageProps) {
  const id = params["name"] ?? "";
  const name = `clusters/${id}`;
  const called = useCall("ClusterService/GetCluster", { name }, { everyMs: POLL_MS });
  const events = useEvents({ target: name });
  const newest = events.list.value[0]?.position;
  useEffect(() => {
    if (newest !== undefined) {
      called.reload();
    }
  }, [newest]);
  const cluster = called.data;
  if (cluster === undefined) {
    return (
      <>
        <PageHead title={<span class="name">{id}</span>} />
        {called.error ? <Missing id={id} called={called} /> : <Loading what="the cluster" lines={8} />}
      </>
    );
  }
  return <Shown cluster={cluster} id={id} error={called.error} events={events} changed={called.reload} />;
}

function Missing({ id, called }: { id: string; called: ReturnType<typeof useCall<"ClusterService/GetCluster">> }) {
  return (
    <>
      <Problem error={called.error} doing={`read the cluster ${id}`} retry={called.reload} />
      <p>
        <a href="/clusters">All clusters</a>
      </p>
    </>
  );
}

function Shown({
  cluster,
  id,
  error,
  events,
  changed,
}: {
  cluster: Cluster;
  id: string;
  error: Parameters<typeof Problem>[0]["error"];
  events: Events;
  changed(): void;
}) {
  const status = cluster.status ?? {};
  const members = status.members ?? [];
  const state = stateOf(cluster);
  const hasPack = state !== "released" && state !== "unknown";
  const pack = useWork(
    async (signal) => (await call("ClusterService/GetHandoverPack", { name: cluster.name }, signal)).files ?? [],
    `pack ${cluster.name} ${state} ${members.map(({ node }) => node).join(" ")}`,
    { isWanted: hasPack },
  );
  return (
    <>
      <PageHead
        title={
          <>
            <span class="name">{id}</span> <ClusterStateBadge state={status.state} />
          </>
        }
        side={<ClusterActions cluster={cluster} changed={changed} />}
      >
        {wantedText(cluster.spec)}, for {cluster.spec?.customer || "no customer"}
      </PageHead>
      <Problem error={error} doing="read the cluster" retry={changed} />
      <Phases cluster={cluster} />
      <Standing cluster={cluster} />
      <RolloutPanel cluster={cluster} />
      <div class="columns-2">
        <FactsPanel cluster={cluster} isOfSite={isOfSite()} />
        <PlacementPanel members={members} files={pack.data} />
      </div>
      <MembersPanel members={members} />
      <OperationsPanel target={cluster.name ?? ""} version={events.list.value[0]?.position ?? ""} />
      <ReplacedPanel cluster={cluster} />
      <div class="columns-2">
        <HistoryPanel cluster={cluster} />
        <PackPanel name={id} pack={pack} />
      </div>
      <EventsPanel events={events} />
      <AsCli
        commands={[
          `rackwright cluster get ${id}`,
          `rackwright cluster explain ${id}`,
          `rackwright cluster watch ${id}`,
          `rackwright cluster pack ${id} ${id}/`,
          `rackwright events --target clusters/${id}`,
        ]}
      />
    </>
  );
}

/** What it waits for, why, and what to do. */
function Standing({ cluster }: { cluster: Cluster }) {
  const { reason, waitingFor } = cluster.status ?? {};
  const next = hints(cluster, everyHalfMinute.value, isOfSite());
  if (!reason && !waitingFor && next.length === 0) {
    return null;
  }
  return (
    <section class="standing" aria-label="What it waits for, and what to do">
      {reason && (
        <p>
          <span class="standing-name">reason</span>{" "}
          <span class="bad-text">
            <Prose text={reason} />
          </span>
        </p>
      )}
      {waitingFor && (
        <p>
          <span class="standing-name">waits for</span>{" "}
          <span>
            <Prose text={waitingFor} />
          </span>
        </p>
      )}
      {next.length > 0 && (
        <div class="standing-next">
          <span class="standing-name">what to do</span>
          <ul>
            {next.map((hint) => (
              <li key={hint}>
                <Prose text={hint} />
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

function EventsPanel({ events }: { events: Events }) {
  const list = events.list.value;
  return (
    <Panel title="Events" side={list.length > SHOWN_EVENTS && `the newest ${SHOWN_EVENTS} of ${list.length}`} isFlush>
      <Problem error={events.error.value} doing="follow the events" retry={events.retry} />
      {list.length === 0 && events.error.value === null && <Empty title="No event of it is stored" />}
      {list.length > 0 && (
        <EventTable
          events={list.slice(0, SHOWN_EVENTS)}
          hasTarget={false}
          caption="Events of the cluster, newest first"
        />
      )}
    </Panel>
  );
}
