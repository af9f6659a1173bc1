import type { Check, Report } from "../api";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, Copy } from "../parts/text";
import { last } from "../names";
import { duration, secondsBetween } from "../time";
import { useCall } from "../use-call";
import { verdict } from "../words";
import type { NodeView } from "./view";

const RANK = ["VERDICT_FAIL", "VERDICT_UNSPECIFIED", "VERDICT_PASS", "VERDICT_NOT_APPLICABLE"];

/** Failures come first. */
function sorted(checks: Check[]): Check[] {
  const rank = (check: Check) => RANK.indexOf(check.verdict ?? "VERDICT_UNSPECIFIED");
  return [...checks].sort((a, b) => rank(a) - rank(b));
}

export function Validation({ of: { id } }: { of: NodeView }) {
  const { data, error, reload } = useCall(
    "NodeService/ListReports",
    { parent: `nodes/${id}`, pageSize: 20 },
    { everyMs: 20_000 },
  );
  const reports = data?.reports ?? [];
  return (
    <div class="stack">
      <Problem error={error} doing="read the reports" retry={reload} />
      {data === undefined && error === null && <Loading what="the reports" />}
      {data !== undefined && reports.length === 0 && (
        <Empty title="There is no validation report">
          <p>A deployed node is checked after its first boot. The report comes then.</p>
        </Empty>
      )}
      {reports.map((report, index) => (
        <ReportPanel key={report.name} report={report} isOpen={index === 0 || !report.passed} />
      ))}
    </div>
  );
}

function ReportPanel({ report, isOpen }: { report: Report; isOpen: boolean }) {
  const checks = sorted(report.checks ?? []);
  const failed = checks.filter((check) => check.verdict === "VERDICT_FAIL").length;
  const took = secondsBetween(report.startTime, report.endTime);
  return (
    <Panel
      title={`Report of generation ${report.claimGeneration ?? 0}`}
      side={
        <StateBadge
          state={
            report.passed
              ? { word: "passed", tone: "good", key: "good" }
              : { word: `FAILED, ${failed} of ${checks.length} checks`, tone: "bad", key: "bad" }
          }
        />
      }
      isFlush
    >
      <p class="note dim">
        <Ago time={report.endTime} />, took {took === null ? "an unknown time" : duration(took)}, profile{" "}
        {report.profile || "unknown"}, <Copy text={last(report.name)} shown={last(report.name).slice(0, 8)} />
      </p>
      <details open={isOpen} class="fold">
        <summary>{checks.length} checks</summary>
        <Table
          caption="Checks, failures first"
          rows={checks}
          keyOf={(check) => check.id ?? ""}
          columns={[
            { title: "check", cell: ({ id }) => <code>{id}</code> },
            { title: "verdict", cell: (check) => <StateBadge state={verdict(check.verdict)} /> },
            { title: "measured", isText: true, cell: ({ measured }) => measured },
            { title: "wanted", isText: true, cell: ({ threshold }) => threshold },
            { title: "from", isWide: true, cell: ({ source }) => source },
            { title: "detail", isText: true, cell: ({ detail }) => detail },
          ]}
        />
      </details>
    </Panel>
  );
}
