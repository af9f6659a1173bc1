import type { ExplainPowerResponse, PowerStep } from "../api";
import { call } from "../client";
import { isOfSite } from "../session";
import { useWork, type Called } from "../use-call";

const RELOAD_MS = 30_000;

/** Reads the path of power to a node, a cluster or a customer. */
export function useExplanation(name: string): Called<ExplainPowerResponse> {
  return useWork(
    async (signal) => {
      const first = await call("PowerService/ExplainPower", { name, pageSize: 1_000 }, signal);
      const steps = [...(first.steps ?? [])];
      for (let pageToken = first.nextPageToken ?? ""; pageToken !== ""; ) {
        const page = await call("PowerService/ExplainPower", { name, pageSize: 1_000, pageToken }, signal);
        steps.push(...(page.steps ?? []));
        pageToken = page.nextPageToken ?? "";
      }
      return { ...first, steps };
    },
    `power of ${name}`,
    { isWanted: isOfSite() && name !== "", everyMs: RELOAD_MS },
  );
}

export interface Branch {
  step: PowerStep;
  depth: number;
  children: Branch[];
}

/** The steps as trees from the top. */
export function branchesOf(steps: PowerStep[]): Branch[] {
  const known = new Map(steps.map((step) => [step.name ?? "", { step, depth: 0, children: [] as Branch[] }]));
  const roots: Branch[] = [];
  for (const branch of known.values()) {
    const above = known.get(branch.step.parent ?? "");
    if (above === undefined || above === branch) {
      roots.push(branch);
    } else {
      above.children.push(branch);
    }
  }
  const deepen = (branches: Branch[], depth: number) => {
    for (const branch of branches) {
      branch.depth = depth;
      deepen(branch.children, depth + 1);
    }
  };
  deepen(roots, 0);
  return roots;
}

/** The watts of one node at each step after the loss of a feed: the power supplies that remain share the load evenly. */
export function afterLoss({ steps = [], psus = [], reservedWatts = 0 }: ExplainPowerResponse, lost: string): Map<string, number> {
  const known = new Map(steps.map((step) => [step.name ?? "", step]));
  const pduOf = (outlet: string) => known.get(outlet.slice(0, outlet.lastIndexOf("/")));
  const live = psus.map(({ outlet = "" }) => pduOf(outlet)).filter((pdu) => pdu !== undefined && pdu.feed !== lost);
  const watts = new Map<string, number>();
  for (const pdu of live) {
    for (let step = pdu; step !== undefined; step = known.get(step.parent ?? "")) {
      const name = step.name ?? "";
      watts.set(name, (watts.get(name) ?? 0) + reservedWatts / live.length);
    }
  }
  return watts;
}
