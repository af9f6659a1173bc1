import { useState } from "preact/hooks";
import type { ClusterResizePlan, ClusterSize } from "../api";
import { call, change } from "../client";
import { short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { TextField } from "../parts/form";
import { Problem } from "../parts/problem";
import { plural } from "../units";
import { usePlan } from "../use-plan";
import type { DialogProps } from "./actions";
import { PlanPicture } from "./plan-picture";
import { kilowatts, listed, nameOf } from "./words";

interface Wanted {
  nodes: string;
  spares: string;
  leave: string;
}

function whole(text: string, least: number): number | null {
  const number = Number(text);
  return text.trim() !== "" && Number.isInteger(number) && number >= least ? number : null;
}

function leaving(text: string): string[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((node) => short("nodes", node));
}

function words(name: string, { nodes, spares, leave }: Wanted): string {
  const named = leaving(leave);
  return `rackwright cluster resize ${name} --nodes ${nodes || "N"} --spares ${spares || "N"}${named.length > 0 ? ` --leave ${named.join(",")}` : ""}`;
}

/** Changes the size. The plan of exactly this size is shown before it can be confirmed. */
export function ResizeDialog({ cluster, close, changed }: DialogProps) {
  const name = nameOf(cluster);
  const { spec, status } = cluster;
  const [wanted, setWanted] = useState<Wanted>({
    nodes: String(spec?.nodes ?? 1),
    spares: String(spec?.spares ?? 0),
    leave: "",
  });
  const [nodes, spares] = [whole(wanted.nodes, 1), whole(wanted.spares, 0)];
  const size: ClusterSize = {
    nodes: nodes ?? undefined,
    spares: spares ?? undefined,
    leave: leaving(wanted.leave).map((node) => `nodes/${node}`),
  };
  const planned = usePlan(JSON.stringify(size), () =>
    call("ClusterService/PlanClusterResize", { name: cluster.name, size }),
  );
  const plan = planned.isCurrent ? planned.plan : null;
  const leave = (plan?.leave ?? []).map((node) => short("nodes", node));
  const fault = nodes === null || spares === null ? "Give whole numbers: at least one node" : "";
  const why =
    fault ||
    (plan === null
      ? "Show the plan first"
      : !plan.fits
        ? "It does not fit"
        : (plan.join ?? []).length + leave.length === 0
          ? "The plan changes nothing"
          : "");
  const set = (changes: Partial<Wanted>) => setWanted({ ...wanted, ...changes });
  return (
    <ConfirmDialog
      title={`Resize ${name}`}
      close={close}
      effect={`It has ${plural(spec?.nodes ?? 0, "node")} and ${plural(spec?.spares ?? 0, "spare")} now. All nodes that join are reserved at once, or none is. Nodes that leave are erased first.`}
      loses={leave.length > 0 ? `all data on the drives of ${listed(leave)}` : ""}
      typed={leave.length > 0 ? name : ""}
      why={why}
      commands={[`${words(name, wanted)} --plan`, words(name, wanted)]}
      send={() => change("ClusterService/ResizeCluster", { name: cluster.name, size })}
      done={changed}
    >
      <div class="field-row">
        <TextField
          label="Nodes in use"
          type="number"
          min={1}
          value={wanted.nodes}
          set={(value) => set({ nodes: value })}
        />
        <TextField label="Spares" type="number" min={0} value={wanted.spares} set={(value) => set({ spares: value })} />
      </div>
      <TextField
        label="Nodes that leave"
        help="Optional, with commas between them. Further nodes are chosen so that the cluster stays compact in the fabric."
        value={wanted.leave}
        set={(value) => set({ leave: value })}
        choices={(status?.members ?? []).map(({ node }) => short("nodes", node))}
      />
      <div>
        <Button why={fault} isBusy={planned.isBusy} onClick={planned.make}>
          Show the plan
        </Button>
      </div>
      <Problem error={planned.error} doing="plan the size" />
      {plan && <Plan plan={plan} />}
    </ConfirmDialog>
  );
}

function Plan({ plan }: { plan: ClusterResizePlan }) {
  if (!plan.fits) {
    return (
      <div class="problem" role="status">
        <p>
          <strong>Does not fit:</strong> {plan.refusal}
        </p>
      </div>
    );
  }
  const [join, leave] = [plan.join, plan.leave].map((names) => (names ?? []).map((node) => short("nodes", node))) as [
    string[],
    string[],
  ];
  return (
    <div class="stack" role="status">
      {join.length > 0 && (
        <p>
          {plural(join.length, "node")} to join: <span class="name">{listed(join)}</span>
        </p>
      )}
      {leave.length > 0 && (
        <p>
          {plural(leave.length, "node")} to erase and remove: <span class="name">{listed(leave)}</span>
        </p>
      )}
      <p class="dim">{kilowatts(plan.reservedWatts)} are reserved until the leaving nodes are erased.</p>
      <PlanPicture text={plan.picture ?? ""} />
    </div>
  );
}
