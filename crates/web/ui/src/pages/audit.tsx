import { useEffect, useState } from "preact/hooks";
import type { AuditFilter, AuditRecord } from "../api";
import { call } from "../client";
import { shellWord, short } from "../names";
import { Button } from "../parts/button";
import { Pick } from "../parts/form";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, ResourceLink } from "../parts/text";
import { location, setQuery } from "../router";
import { stamp } from "../time";
import { count, plural } from "../units";
import { useWork } from "../use-call";

const PAGE = 100;
const POLL_MS = 10_000;
const DAY_MS = 86_400_000;
const SPANS: [string, string][] = [
  ["", "all"],
  ["1", "the last day"],
  ["7", "the last 7 days"],
  ["30", "the last 30 days"],
];
const OUTCOMES: [string, string][] = [
  ["", "all"],
  ["failed", "failed and refused"],
];
/** Texts of the address: their words, an example, and the collection of a bare name. */
const TEXTS: [string, string, string][] = [
  ["caller", "members/ann", "members/"],
  ["target", "nodes/gpu-001", "nodes/"],
  ["method", "NodeService/", ""],
];

/** The beginning of the span, to the minute. */
function startOf(days: string): string | undefined {
  const number = Number(days);
  return number > 0 ? new Date(Math.floor(Date.now() / 60_000) * 60_000 - number * DAY_MS).toISOString() : undefined;
}

/** What the address asks for. */
function filterOf(query: URLSearchParams): AuditFilter {
  const text = (name: string) => query.get(name) ?? "";
  const startTime = startOf(text("days"));
  return {
    caller: text("caller"),
    target: text("target"),
    method: text("method"),
    onlyFailed: query.get("outcome") === "failed",
    ...(startTime && { startTime }),
  };
}

function command({ caller, target, method, onlyFailed, startTime }: AuditFilter): string {
  return [
    "rackwright audit list",
    caller && `--caller ${shellWord(caller)}`,
    target && `--target ${shellWord(target)}`,
    method && `--method ${shellWord(method)}`,
    onlyFailed && "--failed",
    startTime && `--since ${startTime}`,
  ]
    .filter(Boolean)
    .join(" ");
}

interface Read {
  records: AuditRecord[];
  hasMore: boolean;
}

/** The newest records, up to a limit. */
async function read(filter: AuditFilter, limit: number, signal: AbortSignal): Promise<Read> {
  const records: AuditRecord[] = [];
  let pageToken = "";
  do {
    const pageSize = Math.min(1_000, limit - records.length);
    const page = await call("AuditService/ListAudit", { filter, pageSize, pageToken }, signal);
    records.push(...(page.records ?? []));
    pageToken = page.nextPageToken ?? "";
  } while (pageToken !== "" && records.length < limit);
  return { records, hasMore: pageToken !== "" };
}

/** The signed records of calls: caller, call, time and address. */
export function AuditPage() {
  const filter = filterOf(location.value.query);
  const key = location.value.query.toString();
  const [limit, setLimit] = useState(PAGE);
  useEffect(() => setLimit(PAGE), [key]);
  const { data, error, reload } = useWork((signal) => read(filter, limit, signal), `audit ${limit} ${key}`, {
    everyMs: POLL_MS,
  });
  const [shown, setShown] = useState<{ key: string; page: Read } | null>(null);
  useEffect(() => {
    if (data !== undefined) {
      setShown({ key, page: data });
    }
  }, [data]);
  const page = shown?.key === key ? shown.page : data;
  const records = page?.records ?? [];
  return (
    <>
      <PageHead title="Audit">
        Signed records of changes, of sensitive reads and of refused calls. Each is chained to the one before it.
      </PageHead>
      <Filters />
      <Panel title="Records" side={page && `${plural(records.length, "record")}, newest first`} isFlush>
        <Problem error={error} doing="read the audit" retry={reload} />
        {page === undefined && error === null && <Loading what="the audit" lines={8} />}
        {page !== undefined && records.length === 0 && (
          <Empty title="No record matches">{key !== "" && <a href="/audit">Show all records</a>}</Empty>
        )}
        {records.length > 0 && <Records records={records} />}
        {page?.hasMore && (
          <div class="note">
            <Button kind="quiet" onClick={() => setLimit(limit + PAGE)}>
              Show older ones
            </Button>
          </div>
        )}
      </Panel>
      <Panel title="Check the chain">
        <p>
          This page shows what the control plane answers. A check of hashes and signatures needs all records: export them
          here, and check them on a machine that you trust, with the site's public signing key. The check names the first
          record that is changed, missing or forged.
        </p>
      </Panel>
      <AsCli
        commands={[
          command(filter),
          "rackwright audit export --file audit.jsonl",
          "rackwrightd audit verify --file audit.jsonl --key HEX",
        ]}
      />
    </>
  );
}

function Records({ records }: { records: AuditRecord[] }) {
  return (
    <Table
      caption="Records of the audit, newest first"
      rows={records}
      keyOf={({ position }) => position ?? ""}
      columns={[
        { title: "position", isNumber: true, isWide: true, cell: ({ position }) => position },
        { title: "when", cell: ({ time }) => <Ago time={time} bare /> },
        {
          title: "caller",
          cell: ({ caller, role, customer, address, client }) => (
            <>
              <ResourceLink name={caller} shown={short("members", caller)} />
              <br />
              <span class="dim small" title={client}>
                {[role, customer, address].filter(Boolean).join(" ")}
              </span>
            </>
          ),
        },
        {
          title: "call",
          cell: ({ method, target, request, calls }) => (
            <span class="event-text">
              {method} {target && <ResourceLink name={target} shown={short("nodes", target)} />}
              {Number(calls ?? 1) > 1 && ` (${count(Number(calls))} calls)`}
              <br />
              <span class="dim small">{request}</span>
            </span>
          ),
        },
        { title: "outcome", cell: (record) => <Outcome record={record} /> },
      ]}
    />
  );
}

function Outcome({ record: { outcome = "unknown", message, operation, time } }: { record: AuditRecord }) {
  const tone = outcome === "OK" ? "good" : "bad";
  return (
    <span class="event-text" title={stamp(time)}>
      <span class="badge" data-tone={tone}>
        <Glyph tone={tone} />
        <span>{outcome}</span>
      </span>{" "}
      <span class="small">{message}</span>
      {operation && <ResourceLink name={operation} shown={short("operations", operation)} />}
    </span>
  );
}

function Filters() {
  const { query } = location.value;
  const asked = Object.fromEntries(TEXTS.map(([name]) => [name, query.get(name) ?? ""]));
  const [texts, setTexts] = useState(asked);
  const key = JSON.stringify(asked);
  useEffect(() => setTexts(asked), [key]);
  const apply = () =>
    setQuery(
      Object.fromEntries(
        TEXTS.map(([name, , collection]) => {
          const text = (texts[name] ?? "").trim();
          return [name, text === "" || text.includes("/") ? text : `${collection}${text}`];
        }),
      ),
    );
  return (
    <form
      class="toolbar"
      onSubmit={(event) => {
        event.preventDefault();
        apply();
      }}
    >
      {TEXTS.map(([name, example]) => (
        <label key={name} class="choice">
          {name}{" "}
          <input
            type="text"
            placeholder={example}
            spellcheck={false}
            autocomplete="off"
            value={texts[name]}
            onInput={(event) => setTexts({ ...texts, [name]: event.currentTarget.value })}
          />
        </label>
      ))}
      <Button type="submit">Filter</Button>
      <Pick label="time" value={query.get("days") ?? ""} set={(days) => setQuery({ days })} options={SPANS} />
      <Pick
        label="outcome"
        value={query.get("outcome") ?? ""}
        set={(outcome) => setQuery({ outcome })}
        options={OUTCOMES}
      />
    </form>
  );
}
