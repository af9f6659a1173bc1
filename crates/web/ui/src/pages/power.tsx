import type { ListAlarmsResponse } from "../api";
import { AlarmsPanel, useAlarms } from "../fleet/alarms";
import { NoSite } from "../hall/no-site";
import { isWithoutSite, useRacks } from "../hall/topology";
import { AsCli, PageHead } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { CoolingPanel } from "../power/cooling";
import { ExplainPanel } from "../power/explain";
import { LEVELS, useReport, type Level, type Report } from "../power/levels";
import { ReportPanel } from "../power/report";
import { LevelsPanel } from "../power/tree";
import { location } from "../router";
import { shellWord } from "../names";
import { count } from "../units";

export function PowerPage() {
  const { query } = location.value;
  const report = useReport();
  const alarms = useAlarms();
  const racks = useRacks();
  const level = LEVELS.find((some) => some === query.get("level")) ?? "circuit";
  const feed = query.get("feed") === "none" ? "" : query.get("feed");
  const of = query.get("of") ?? "";
  return (
    <>
      <PageHead title="Power and cooling">{alarms.data ? coverage(alarms.data) : alarms.error ? "Unknown which devices are read" : "Reading the alarms"}</PageHead>
      {isWithoutSite(report.error) ? <NoSite what="power and cooling" /> : <Problem error={report.error} doing="read the power report" retry={report.reload} />}
      {report.data === undefined && report.error === null && <Loading what="the power report" lines={8} />}
      {report.data && <LevelsPanel report={report.data} level={level} feed={feed} />}
      <div class="columns-2">
        <AlarmsPanel alarms={alarms} />
        {racks.data && <CoolingPanel racks={racks.data} alarms={alarms.data} />}
      </div>
      {!isWithoutSite(report.error) && <ExplainPanel name={of} />}
      {report.data && <Vertices report={report.data} level={level} feed={feed} />}
      <AsCli commands={[`rackwright power report --level ${level}`, `rackwright power explain ${of === "" ? "NODE" : shellWord(of)}`, "rackwright power alarms"]} />
    </>
  );
}

function Vertices({ report, level, feed }: { report: Report; level: Level; feed: string | null }) {
  if ([...report.values()].every((rows) => rows.length === 0)) {
    return (
      <Empty title="The site file describes no power">
        <p>
          Add the section <code>power</code> to the site file, and apply it with <code>rackwright site apply FILE</code>.
        </p>
      </Empty>
    );
  }
  return <ReportPanel report={report} level={level} feed={feed} />;
}

const THINGS: Record<string, string> = { node: "nodes", pdu: "PDUs", cooling: "cooling units" };

/** As the CLI: what is read, and that nothing is known of the rest. */
function coverage({ coverage: of = [] }: ListAlarmsResponse): string {
  if (of.every(({ read = 0 }) => read === 0)) {
    return "The state of power and cooling is unknown: no device is read";
  }
  const parts = of.map(({ kind = "", read = 0, known = 0 }) => `${count(read)} of ${count(known)} ${THINGS[kind] ?? kind}`);
  const isWhole = of.every(({ read = 0, known = 0 }) => read >= known);
  return `Read: ${parts.join(", ")}${isWhole ? "" : "; the state of the others is unknown"}`;
}
