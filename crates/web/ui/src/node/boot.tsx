import { call } from "../client";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { Ago, Dash } from "../parts/text";
import { secondsBetween } from "../time";
import { useWork } from "../use-call";
import type { BootStage } from "../api";
import type { NodeView } from "./view";

interface Step extends BootStage {
  after: number | null;
}

function steps(stages: BootStage[]): Step[] {
  return stages.map((stage, index) => ({ ...stage, after: secondsBetween(stages[index - 1]?.time, stage.time) }));
}

/** The stages of network boots, for each address of the machine. */
export function BootTrace({ of: { node } }: { of: NodeView }) {
  const macs = node.status?.macs ?? [];
  const { data, error, reload } = useWork(
    (signal) => Promise.all(macs.map((mac) => call("BootService/TraceBoot", { mac }, signal))),
    `BootService/TraceBoot ${macs.join(" ")}`,
    { everyMs: 5_000 },
  );
  if (macs.length === 0) {
    return (
      <Empty title="No MAC address of the node is known yet">
        <p>
          The BMC reports them, or give them: <code>rackwright node update ID --boot-mac MAC</code>
        </p>
      </Empty>
    );
  }
  return (
    <div class="stack">
      <Problem error={error} doing="trace the boot" retry={reload} />
      {data === undefined && error === null && <Loading what="the boot stages" />}
      {(data ?? []).map(({ mac, stages = [] }) => (
        <Panel key={mac} title={mac ?? ""} isFlush>
          {stages.length === 0 ? (
            <Empty title="No boot stage is recorded">
              <p>The stages are recorded when the machine boots over the network.</p>
            </Empty>
          ) : (
            <Table
              caption={`Boot stages of ${mac}, oldest first`}
              rows={steps(stages)}
              keyOf={(_, index) => index}
              columns={[
                { title: "when", cell: ({ time }) => <Ago time={time} /> },
                {
                  title: "after",
                  isNumber: true,
                  cell: ({ after }) => (after === null ? <Dash /> : `+${after.toFixed(2)} s`),
                },
                {
                  title: "stage",
                  cell: ({ stage }) => <span class={stage === "refused" ? "bad-text" : "strong"}>{stage}</span>,
                },
                { title: "from", isWide: true, cell: ({ remote }) => remote || <Dash /> },
                { title: "detail", isText: true, cell: ({ detail }) => detail || <Dash /> },
              ]}
            />
          )}
        </Panel>
      ))}
    </div>
  );
}
