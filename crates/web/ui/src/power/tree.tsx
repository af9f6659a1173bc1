import { kw } from "../hall/pdus";
import { Panel } from "../parts/panel";
import { link } from "../router";
import { count } from "../units";
import { BarLegend, PowerBar } from "./bar";
import { feedsOf, LEVELS, sumOf, type Level, type Report, type Sum } from "./levels";

/** Every level of the power tree by feed letter, from the utility down. */
export function LevelsPanel({ report, level, feed }: { report: Report; level: Level; feed: string | null }) {
  const feeds = feedsOf(report);
  const shown = LEVELS.filter((some) => (report.get(some) ?? []).length > 0);
  return (
    <Panel title="From the utility to the rack" side="all of a level together" isFlush>
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Levels of the power tree">
        <table class="table power-levels">
          <caption class="sr">Levels of the power tree by feed</caption>
          <thead>
            <tr>
              <th scope="col">level</th>
              {feeds.map((letter) => (
                <th key={letter} scope="col">
                  {letter ? `feed ${letter}` : "all feeds"}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((some) => {
              const rows = report.get(some) ?? [];
              return (
                <tr key={some}>
                  <th scope="row">
                    <a href={link("/power", { level: some })} aria-current={some === level && feed === null ? "true" : undefined}>
                      {some}
                    </a>{" "}
                    <span class="dim">{count(rows.length)}</span>
                  </th>
                  {feeds.map((letter) => {
                    const part = rows.filter((row) => (row.feed ?? "") === letter);
                    return (
                      <td key={letter} data-feed={letter ? `feed ${letter}` : "all feeds"}>
                        {part.length > 0 ? <Cell sum={sumOf(part)} href={link("/power", { level: some, feed: letter || "none" })} isCurrent={some === level && feed === letter} /> : <span class="dim">-</span>}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <div class="note">
        <BarLegend />
      </div>
    </Panel>
  );
}

function Cell({ sum, href, isCurrent }: { sum: Sum; href: string; isCurrent: boolean }) {
  const { figures, count: number, read, least } = sum;
  const left = (least?.headroomWatts ?? 0) / Math.max(1, least?.deratedWatts ?? 1);
  return (
    <a class="power-cell" href={href} aria-current={isCurrent ? "true" : undefined}>
      <PowerBar figures={figures} />
      <span class="power-figures">
        <span>
          <strong>{figures.measured === null ? (read === 0 ? "not measured" : `${count(read)} of ${count(number)} measured`) : kw(figures.measured)}</strong> of {kw(figures.permitted)}
        </span>
        <span class={left < 0 ? "bad-text" : "dim"}>
          least headroom {Math.round(left * 100)} %
        </span>
      </span>
    </a>
  );
}
