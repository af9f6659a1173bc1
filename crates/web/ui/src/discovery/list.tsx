import type { Discovery } from "../api";
import { Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { Bar } from "../parts/progress";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago } from "../parts/text";
import { link } from "../router";
import { count } from "../units";
import { countsText, idOf, phase } from "./words";

export function DiscoveriesPanel({ discoveries, chosen }: { discoveries: Discovery[]; chosen: string }) {
  return (
    <Panel title="Discoveries" isFlush>
      {discoveries.length === 0 && (
        <Empty title="There is no discovery yet">
          <p>
            A discovery looks for BMCs in the management network. It creates no node. Start one, or use{" "}
            <code>rackwright discover start</code>.
          </p>
        </Empty>
      )}
      {discoveries.length > 0 && (
        <Table
          caption="Discoveries, newest first"
          rows={discoveries}
          keyOf={({ name }) => name ?? ""}
          columns={[
            {
              title: "discovery",
              cell: (one) => (
                <a
                  class="name"
                  href={link("/discovery", { id: idOf(one) })}
                  aria-current={idOf(one) === chosen ? "true" : undefined}
                >
                  {idOf(one).slice(0, 8)}
                </a>
              ),
            },
            {
              title: "began",
              cell: ({ createTime }) => (
                <span class="nowrap">
                  <Ago time={createTime} />
                </span>
              ),
            },
            { title: "by", isWide: true, cell: ({ requestedBy }) => requestedBy },
            { title: "phase", cell: (one) => <Phase discovery={one} /> },
            {
              title: "checked",
              isNumber: true,
              isWide: true,
              cell: ({ reached, total }) => `${count(Number(reached ?? 0))} of ${count(Number(total ?? 0))}`,
            },
            { title: "silent", isNumber: true, isWide: true, cell: ({ silent }) => count(Number(silent ?? 0)) },
            { title: "found", isWide: true, cell: countsText },
            { title: "note", isWide: true, cell: ({ message }) => message && <span class="bad-text">{message}</span> },
          ]}
        />
      )}
    </Panel>
  );
}

function Phase({ discovery }: { discovery: Discovery }) {
  const { total, reached } = discovery;
  const isDone = discovery.phase === "done";
  return (
    <span class="ready">
      <StateBadge state={phase(discovery)} />
      {!isDone && Number(total ?? 0) > 0 && (
        <Bar percent={(Number(reached ?? 0) / Number(total)) * 100} label="addresses checked" />
      )}
    </span>
  );
}
