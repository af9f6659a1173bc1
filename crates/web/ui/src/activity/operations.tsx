import { useEffect, useState } from "preact/hooks";
import type { Operation } from "../api";
import { call } from "../client";
import { term } from "../fleet/filter";
import { Button } from "../parts/button";
import { Pick } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { location, setQuery } from "../router";
import { useWork } from "../use-call";
import { operationState } from "../words";
import { OperationTable } from "./operation-table";

const PAGE = 100;
const POLL_MS = 4_000;
const STATES: [string, string][] = [
  ["", "all"],
  ["running", "running"],
  ["done", "done"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
];
const KINDS = [
  "enroll",
  "deploy",
  "reimage",
  "release",
  "readmit",
  "resume",
  "retry",
  "settings",
  "power",
  "firmware",
  "bmc-password",
  "discover",
  "import-image",
  "create-cluster",
  "release-cluster",
  "resize-cluster",
  "reimage-cluster",
  "roll-back-cluster",
  "replace-node",
  "retry-cluster",
];

/** The API's filter knows whether an operation is done, and not how it ended. */
function filterOf(query: URLSearchParams): string {
  const [state, kind, target] = ["state", "kind", "target"].map((name) => query.get(name) ?? "");
  const done = state === "" ? "" : `done = ${state !== "running"}`;
  return [done, kind && term("kind", kind), target && term("target", target)].filter(Boolean).join(" AND ");
}

export function useOperationFilter(): string {
  return filterOf(location.value.query);
}

export function Operations() {
  const { query } = location.value;
  const state = query.get("state") ?? "";
  const kind = query.get("kind") ?? "";
  const filter = filterOf(query);
  const [limit, setLimit] = useState(PAGE);
  useEffect(() => setLimit(PAGE), [filter]);
  const { data, error, reload } = useWork((signal) => read(filter, limit, signal), `operations ${limit} ${filter}`, {
    everyMs: POLL_MS,
  });
  const [shown, setShown] = useState<{ filter: string; page: Read } | null>(null);
  useEffect(() => {
    if (data !== undefined) {
      setShown({ filter, page: data });
    }
  }, [data]);
  const page = shown?.filter === filter ? shown.page : data;
  const all = page?.operations ?? [];
  const isEnd = state === "failed" || state === "cancelled" || state === "done";
  const list = isEnd ? all.filter((operation) => operationState(operation).word === state) : all;
  const kinds = [...new Set([...KINDS, ...all.map((operation) => operation.kind ?? ""), kind])].filter(Boolean).sort();
  return (
    <>
      <div class="toolbar">
        <Pick label="state" value={state} set={(value) => setQuery({ state: value })} options={STATES} />
        <Pick
          label="kind"
          value={kind}
          set={(value) => setQuery({ kind: value })}
          options={[["", "all"], ...kinds.map((word): [string, string] => [word, word])]}
        />
        <TargetBox target={query.get("target") ?? ""} />
      </div>
      <Panel title="Operations" side={page && searched(all.length, list.length, page.hasMore)} isFlush>
        <Problem error={error} doing="read the operations" retry={reload} />
        {page === undefined && error === null && <Loading what="the operations" lines={8} />}
        {page !== undefined && list.length === 0 && (
          <Empty title={filter === "" ? "There is no operation yet" : "No operation matches"}>
            {filter !== "" && <a href="/activity">Show all operations</a>}
          </Empty>
        )}
        {list.length > 0 && <OperationTable operations={list} hasTarget changed={reload} />}
        {page?.hasMore && (
          <div class="note">
            <Button kind="quiet" onClick={() => setLimit(limit + PAGE)}>
              Show older ones
            </Button>
          </div>
        )}
      </Panel>
    </>
  );
}

function searched(all: number, shown: number, hasMore: boolean): string {
  const of = shown === all ? `${shown}` : `${shown} of ${all}`;
  return hasMore ? `${of} newest` : of;
}

interface Read {
  operations: Operation[];
  hasMore: boolean;
}

/** The newest operations, up to a limit. */
async function read(filter: string, limit: number, signal: AbortSignal): Promise<Read> {
  const operations: Operation[] = [];
  let pageToken = "";
  do {
    const page = await call(
      "OperationService/ListOperations",
      { filter, pageSize: Math.min(1_000, limit - operations.length), pageToken },
      signal,
    );
    operations.push(...(page.operations ?? []));
    pageToken = page.nextPageToken ?? "";
  } while (pageToken !== "" && operations.length < limit);
  return { operations, hasMore: pageToken !== "" };
}

/** Only operations or events of one resource. */
export function TargetBox({ target }: { target: string }) {
  const [text, setText] = useState(target);
  useEffect(() => setText(target), [target]);
  return (
    <form
      class="target"
      onSubmit={(event) => {
        event.preventDefault();
        const name = text.trim();
        setQuery({ target: name === "" || name.includes("/") ? name : `nodes/${name}` });
      }}
    >
      <label class="choice">
        target{" "}
        <input
          type="text"
          placeholder="nodes/gpu-001"
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <Button type="submit">Filter</Button>
      {target !== "" && (
        <Button kind="quiet" onClick={() => setQuery({ target: null })}>
          All targets
        </Button>
      )}
    </form>
  );
}
