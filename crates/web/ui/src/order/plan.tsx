import type { ClusterPlan, SkuCapacity } from "../api";
import { hourly } from "../clusters/capacity";
import { PlanPicture } from "../clusters/plan-picture";
import { kilowatts, listed } from "../clusters/words";
import { short } from "../names";
import { Facts, Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Dash } from "../parts/text";
import { plural } from "../units";

const FITS = { word: "fits", tone: "good", key: "good" } as const;
const REFUSED = { word: "does not fit", tone: "bad", key: "bad" } as const;

interface Props {
  plan: ClusterPlan | null;
  /** The fields have changed since the plan. */
  isOld: boolean;
  sku: SkuCapacity | undefined;
  bandwidth: string;
}

/** Where the cluster would be placed, or why not and what would fit. */
export function PlanPanel({ plan, isOld, sku, bandwidth }: Props) {
  if (plan === null) {
    return (
      <Panel title="Plan">
        <Empty title="No plan yet">
          <p>The plan shows the placement, the power and the price. It reserves nothing.</p>
        </Empty>
      </Panel>
    );
  }
  return (
    <Panel
      title="Plan"
      side={isOld ? <span>of an earlier request: plan again</span> : <StateBadge state={plan.fits ? FITS : REFUSED} />}
    >
      {plan.fits ? <Fitting plan={plan} sku={sku} /> : <Refused plan={plan} sku={sku} bandwidth={bandwidth} />}
    </Panel>
  );
}

function Fitting({ plan, sku }: { plan: ClusterPlan; sku: SkuCapacity | undefined }) {
  const [nodes, spares] = [plan.nodes, plan.spares].map((names) =>
    (names ?? []).map((name) => short("nodes", name)),
  ) as [string[], string[]];
  const price = sku ? hourly(sku, nodes.length + spares.length) : "";
  return (
    <>
      <PlanPicture text={plan.picture ?? ""} />
      <Facts
        rows={[
          ["nodes", <span class="name">{listed(nodes)}</span>],
          ["spares", spares.length > 0 ? <span class="name">{listed(spares)}</span> : <Dash />],
          ["power", `${kilowatts(plan.reservedWatts)} would be reserved`],
          [
            "price",
            price ? (
              `${price} an hour for ${plural(nodes.length + spares.length, "node")} at the site's list price`
            ) : (
              <span class="dim">the site has no price for this SKU</span>
            ),
          ],
        ]}
      />
    </>
  );
}

function Refused({ plan, sku, bandwidth }: { plan: ClusterPlan; sku: SkuCapacity | undefined; bandwidth: string }) {
  const fabrics = (sku?.fabrics ?? []).filter(({ largestClusterNodes }) => (largestClusterNodes ?? 0) > 0);
  return (
    <>
      <p role="status">{plan.refusal || "The control plane gave no reason."}</p>
      {fabrics.length > 0 && (
        <div>
          <p class="dim">The largest clusters of {sku?.sku} that fit now:</p>
          <ul>
            {fabrics.map((fabric) => (
              <li key={fabric.bandwidth}>
                {plural(fabric.largestClusterNodes ?? 0, "node")}, {fabric.bandwidth}
                {fabric.bandwidth === bandwidth && " (as you asked)"}
              </li>
            ))}
          </ul>
        </div>
      )}
    </>
  );
}
