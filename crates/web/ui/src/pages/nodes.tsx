import { useCallback, useMemo, useState } from "preact/hooks";
import { BulkBar } from "../actions/bulk";
import { withState } from "../fleet/filter";
import { GROUPS } from "../fleet/groups";
import type { Row } from "../fleet/row";
import { useNodes, type NodeStore } from "../fleet/store";
import { columnsOf } from "../nodes/columns";
import { NodeGrid } from "../nodes/grid";
import { Chips, ColumnMenu, FILTER_HELP, FilterBox, GroupSelect, ViewSwitch } from "../nodes/toolbar";
import { narrowingOf, useView } from "../nodes/view";
import { HeatMap, inWords, Legend } from "../parts/heat-map";
import { AsCli, PageHead } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { link, location, setQuery } from "../router";
import { shellWord } from "../names";
import { isOperator, session } from "../session";
import { count, plural } from "../units";
import type { NodeStateWord } from "../words";

/** Labels of this many nodes are offered as columns. */
const SEARCHED_FOR_LABELS = 500;

export function NodesPage() {
  const { query } = location.value;
  const filter = query.get("filter") ?? "";
  const sort = query.get("sort") ?? "node";
  const isMap = query.get("view") === "map";
  const store = useNodes(filter);
  const narrowing = narrowingOf(query);
  const rows = useView(store, narrowing, isMap ? "node" : sort);
  const counts = useMemo(() => countStates(rows), [rows]);
  const labels = useLabels(store);
  const group = query.get("group") ?? "sku";
  return (
    <div class="nodes-page">
      <PageHead title="Nodes" side={<ViewSwitch isMap={isMap} />}>
        <Count store={store} shown={rows.length} />
      </PageHead>
      <div class="toolbar">
        <FilterBox filter={filter} />
        <Chips narrowing={narrowing} />
        {isMap ? (
          <GroupSelect group={group} labels={labels} />
        ) : (
          <ColumnMenu columns={query.get("cols")} labels={labels} />
        )}
      </div>
      <Problem error={store.error.value} doing="list the nodes" retry={() => store.retry()} />
      {store.error.value?.code === "invalid_argument" && <p class="dim">{FILTER_HELP}.</p>}
      <States counts={counts} filter={filter} />
      <Content
        store={store}
        rows={rows}
        counts={counts}
        isMap={isMap}
        group={group}
        sort={sort}
        columns={query.get("cols")}
      />
      <AsCli
        commands={[
          filter === "" ? "rackwright node list" : `rackwright node list --filter ${shellWord(filter)}`,
          "rackwright node watch",
        ]}
      />
    </div>
  );
}

function useLabels(store: NodeStore): string[] {
  const { members } = store;
  return useMemo(() => {
    const keys = new Set<string>();
    let seen = 0;
    for (const row of store.rows.values()) {
      Object.keys(row.labels).forEach((key) => keys.add(key));
      seen += 1;
      if (seen === SEARCHED_FOR_LABELS) {
        break;
      }
    }
    return [...keys].sort();
  }, [store, members]);
}

function Count({ store, shown }: { store: NodeStore; shown: number }) {
  store.version.value;
  const all = store.rows.size;
  if (store.error.value !== null) {
    return <>Unknown number of nodes</>;
  }
  if (!store.isSynced.value) {
    return <>Receiving nodes: {count(all)} so far</>;
  }
  const of = shown === all ? "" : ` of ${count(all)}`;
  return (
    <>
      {count(shown)}
      {of} {all === 1 ? "node" : "nodes"}, live
    </>
  );
}

function countStates(rows: Row[]): Map<NodeStateWord, number> {
  const known = new Map<NodeStateWord, number>();
  for (const row of rows) {
    known.set(row.state, (known.get(row.state) ?? 0) + 1);
  }
  return known;
}

function States({ counts, filter }: { counts: Map<NodeStateWord, number>; filter: string }) {
  const query = (state: NodeStateWord) => {
    const next = new URLSearchParams(location.value.query);
    next.delete("filter");
    return link("/nodes", { filter: withState(filter, state), ...Object.fromEntries(next) });
  };
  return <Legend counts={counts} query={query} />;
}

function Content({
  store,
  rows,
  counts,
  isMap,
  group,
  sort,
  columns,
}: {
  store: NodeStore;
  rows: Row[];
  counts: Map<NodeStateWord, number>;
  isMap: boolean;
  group: string;
  sort: string;
  columns: string | null;
}) {
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const groupOf = useMemo(() => groupFunction(group), [group]);
  const shownColumns = useMemo(() => columnsOf(columns), [columns]);
  const select = useCallback((ids: string[], isSelected: boolean) => {
    setSelected((before) => {
      const next = new Set(before);
      ids.forEach((id) => (isSelected ? next.add(id) : next.delete(id)));
      return next;
    });
  }, []);
  const canSelect = isOperator() || (session.value?.customer ?? "") !== "";
  if (rows.length === 0) {
    return store.isSynced.value ? (
      <NoNodes store={store} />
    ) : store.error.value === null ? (
      <Loading what="the nodes" lines={8} />
    ) : null;
  }
  if (isMap) {
    const height = Math.max(240, window.innerHeight - 330);
    return (
      <div class="map-place">
        <HeatMap
          rows={rows}
          version={store.version.value}
          groupOf={groupOf}
          height={height}
          label={`Nodes by state: ${inWords(counts)}`}
        />
      </div>
    );
  }
  const chosen = selected.size === 0 ? [] : rows.filter((row) => selected.has(row.id));
  return (
    <>
      <NodeGrid
        rows={rows}
        columns={shownColumns}
        sort={sort}
        onSort={(key) => setQuery({ sort: key === "node" ? null : key })}
        selected={selected}
        onSelect={select}
        onSelectAll={(isSelected) => setSelected(new Set(isSelected ? rows.map((row) => row.id) : []))}
        canSelect={canSelect}
      />
      {chosen.length > 0 && <BulkBar rows={chosen} clear={() => setSelected(new Set())} />}
    </>
  );
}

function groupFunction(group: string): ((row: Row) => string) | null {
  if (group.startsWith("labels.")) {
    const key = group.slice("labels.".length);
    return (row) => row.labels[key] ?? "";
  }
  return GROUPS[group]?.of ?? null;
}

function NoNodes({ store }: { store: NodeStore }) {
  return store.rows.size > 0 || store.filter !== "" ? (
    <Empty title="No node matches">
      <p>
        {store.rows.size > 0 ? `${plural(store.rows.size, "node")} match the filter, but not what narrows it. ` : ""}
        <a href="/nodes">Show all nodes</a>
      </p>
    </Empty>
  ) : (
    <Empty title="No node is enrolled yet">
      <p>
        Enrol one with <code>rackwright node enroll</code>, or many with <code>rackwright apply -f FILE</code>.
      </p>
    </Empty>
  );
}
