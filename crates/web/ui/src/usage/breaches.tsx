import type { UsageBreach } from "../api";
import { pages } from "../client";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Ago, ResourceLink } from "../parts/text";
import { duration } from "../time";
import { useWork } from "../use-call";
import type { Period } from "./period";

const KINDS: Record<string, string> = {
  "open-default": "ports were in the default partition",
  "foreign-key": "ports had a key that they must not have",
  "cut-off": "ports lacked the key of the cluster",
};

/** Breaches of isolation of clusters in the month. */
export function BreachesPanel({ period, customer, isOwn }: { period: Period; customer: string; isOwn: boolean }) {
  const { startTime, endTime } = period;
  const { data, error, reload } = useWork(
    (signal): Promise<UsageBreach[]> =>
      pages(
        "MeteringService/ListUsageBreaches",
        { pageSize: 1_000, startTime, endTime, customer },
        ({ breaches }) => breaches,
        signal,
      ),
    `breaches ${startTime} ${customer}`,
    { everyMs: 60_000 },
  );
  const list = data ?? [];
  const of: Column<UsageBreach> = { title: "customer", isWide: true, cell: (breach) => breach.customer };
  return (
    <Panel title="Breaches of isolation" isFlush>
      <Problem error={error} doing="list the breaches" retry={reload} />
      {data === undefined && error === null && <Loading what="the breaches" />}
      {data !== undefined && list.length === 0 && (
        <Empty title="No breach of a cluster's isolation is known in this month" />
      )}
      {list.length > 0 && (
        <Table
          caption="Breaches of isolation"
          rows={list}
          keyOf={({ cluster, since, kind }) => `${cluster} ${since} ${kind}`}
          columns={[
            {
              title: "state",
              cell: ({ endTime: end }) => (
                <StateBadge
                  state={end ? { word: "ended", tone: "dim", key: "dim" } : { word: "open", tone: "bad", key: "bad" }}
                />
              ),
            },
            { title: "what", cell: ({ kind }) => KINDS[kind ?? ""] ?? kind },
            {
              title: "cluster",
              cell: ({ cluster }) => <ResourceLink name={cluster} shown={short("clusters", cluster)} />,
            },
            ...(isOwn ? [] : [of]),
            { title: "first seen", cell: ({ since }) => <Ago time={since} /> },
            { title: "last reading without it", isWide: true, cell: ({ goodTime }) => <Ago time={goodTime} /> },
            { title: "in this month", isNumber: true, cell: ({ seconds }) => duration(Number(seconds ?? 0)) },
          ]}
        />
      )}
    </Panel>
  );
}
