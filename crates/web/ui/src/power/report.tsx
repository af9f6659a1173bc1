import { useEffect, useState } from "preact/hooks";
import type { PowerHeadroom } from "../api";
import { kw } from "../hall/pdus";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { Table } from "../parts/table";
import { link, setQuery } from "../router";
import { count, plural } from "../units";
import { PowerBar } from "./bar";
import { figuresOf, LEVELS, type Level, type Report } from "./levels";

const STEP = 12;

/** The vertices of one level, those with the least headroom first. */
export function ReportPanel({ report, level, feed }: { report: Report; level: Level; feed: string | null }) {
  const [shown, setShown] = useState(STEP);
  const [text, setText] = useState("");
  useEffect(() => setShown(STEP), [level, feed, text]);
  const all = report.get(level) ?? [];
  const rows = all.filter((row) => (feed === null || (row.feed ?? "") === feed) && (row.name ?? "").includes(text.trim()));
  return (
    <Panel
      title={`Headroom by ${level}`}
      isFlush
      side={
        <>
          <label>
            level{" "}
            <select value={level} onChange={(event) => setQuery({ level: event.currentTarget.value, feed: null })}>
              {LEVELS.map((some) => (
                <option key={some} value={some}>
                  {some} ({count(report.get(some)?.length ?? 0)})
                </option>
              ))}
            </select>
          </label>
          <input type="text" class="power-search" aria-label={`Show only a ${level} with this name`} placeholder="name" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </>
      }
    >
      {rows.length === 0 ? (
        <Empty title={all.length === 0 ? `The site file has no ${level}` : `No ${level} matches`}>
          {all.length > 0 && (
            <p>
              <a href={link("/power", { level })}>Show all</a>
            </p>
          )}
        </Empty>
      ) : (
        <Rows rows={rows.slice(0, shown)} level={level} />
      )}
      {rows.length > 0 && (
        <div class="note power-more">
          <span class="dim">
            {count(Math.min(shown, rows.length))} of {plural(rows.length, level)}
            {feed ? ` of feed ${feed}` : ""}, least headroom first
          </span>
          {rows.length > shown && <Button onClick={() => setShown(shown + STEP)}>Show {count(Math.min(STEP, rows.length - shown))} more</Button>}
        </div>
      )}
    </Panel>
  );
}

function Rows({ rows, level }: { rows: PowerHeadroom[]; level: Level }) {
  return (
    <Table
      caption={`Headroom by ${level}`}
      rows={rows}
      keyOf={(row) => row.name ?? ""}
      columns={[
        { title: "name", cell: (row) => <span class="name">{row.name}</span> },
        { title: "feed", cell: (row) => row.feed || <span class="dim">all</span> },
        { title: "load", cell: (row) => <PowerBar figures={figuresOf(row)} isThin /> },
        { title: "permitted", isNumber: true, isWide: true, cell: (row) => kw(row.deratedWatts ?? 0) },
        { title: "reserved", isNumber: true, isWide: true, cell: (row) => kw(row.reservedWatts ?? 0) },
        { title: "worst", isNumber: true, isWide: true, cell: (row) => kw(row.worstWatts ?? 0) },
        { title: "measured", isNumber: true, isWide: true, cell: (row) => (row.measuredWatts === undefined ? <span class="dim">unknown</span> : kw(row.measuredWatts)) },
        { title: "headroom", isNumber: true, cell: (row) => <span class={(row.headroomWatts ?? 0) < 0 ? "bad-text" : undefined}>{kw(row.headroomWatts ?? 0)}</span> },
        { title: "stranded", isNumber: true, isWide: true, cell: (row) => kw(row.strandedWatts ?? 0) },
      ]}
    />
  );
}
