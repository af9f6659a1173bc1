import { useState } from "preact/hooks";
import type { Operation } from "../api";
import { call, change } from "../client";
import { useCustomers } from "../clusters/customers";
import { kilowatts, wantedText } from "../clusters/words";
import { DeploymentFields, PlacementFields } from "../order/fields";
import { PlanPanel } from "../order/plan";
import { OrderProgress } from "../order/progress";
import { createCommand, labelsOf, planKey, specOf, whyNotCreate, whyNotPlan, type Wanted } from "../order/wanted";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Problem } from "../parts/problem";
import { location } from "../router";
import { whyNotCall } from "../roles";
import { useCall } from "../use-call";
import { usePlan } from "../use-plan";

function wantedOf(query: URLSearchParams): Wanted {
  const text = (name: string, otherwise = "") => query.get(name) ?? otherwise;
  return {
    name: text("name"),
    customer: text("customer"),
    sku: text("sku"),
    nodes: text("nodes", "8"),
    spares: text("spares", "0"),
    bandwidth: text("bandwidth", "non-blocking"),
    image: "",
    keys: "",
    userData: "",
    leaseEnd: "",
    labels: "",
  };
}

export function OrderPage() {
  const [wanted, setWanted] = useState(() => wantedOf(location.value.query));
  const [started, setStarted] = useState<Operation | null>(null);
  const customers = useCustomers();
  const customer = wanted.customer.trim();
  const capacity = useCall("ClusterService/GetCapacity", { customer }, { isWanted: customers.includes(customer) });
  const skus = capacity.data?.skus ?? [];
  const set = (changes: Partial<Wanted>) => setWanted({ ...wanted, ...changes });
  const planned = usePlan(planKey(wanted), () =>
    call("ClusterService/PlanCluster", { clusterId: wanted.name.trim(), spec: specOf(wanted) }),
  );
  const { plan, isCurrent } = planned;
  const whyNoPlan = whyNotPlan(wanted);
  const whyNoOrder =
    whyNotCall("ClusterService/CreateCluster") ||
    whyNoPlan ||
    (plan === null || !isCurrent ? "Plan it first" : plan.fits ? whyNotCreate(wanted) : "It does not fit");
  const order = () =>
    openDialog((close) => <OrderDialog wanted={wanted} watts={plan?.reservedWatts} close={close} done={setStarted} />);
  if (started !== null) {
    return (
      <>
        <PageHead title="Create a cluster" />
        <OrderProgress started={started} />
        <AsCli commands={[`rackwright cluster watch ${wanted.name.trim()}`]} />
      </>
    );
  }
  return (
    <>
      <PageHead title="Create a cluster">
        Nodes, links, power, cooling and a partition key are reserved at once, all or nothing.
      </PageHead>
      <div class="order">
        <Panel title="1. Placement">
          <PlacementFields wanted={wanted} set={set} skus={skus} customers={customers} />
          <Problem error={capacity.error} doing="read the capacity" />
          <div>
            <Button
              kind={isCurrent ? "plain" : "primary"}
              why={whyNoPlan}
              isBusy={planned.isBusy}
              onClick={planned.make}
            >
              Plan
            </Button>
          </div>
          <Problem error={planned.error} doing="plan the cluster" />
        </Panel>
        <PlanPanel
          plan={plan}
          isOld={plan !== null && !isCurrent}
          sku={skus.find(({ sku }) => sku === wanted.sku)}
          bandwidth={wanted.bandwidth.trim()}
        />
        <Panel title="2. Nodes">
          <DeploymentFields wanted={wanted} set={set} />
          <div>
            <Button kind="primary" why={whyNoOrder} onClick={order}>
              Create the cluster
            </Button>
          </div>
        </Panel>
      </div>
      <AsCli commands={[createCommand(wanted)]} />
    </>
  );
}

function OrderDialog({
  wanted,
  watts,
  close,
  done,
}: {
  wanted: Wanted;
  watts: number | undefined;
  close(): void;
  done(started: Operation): void;
}) {
  const name = wanted.name.trim();
  const spec = specOf(wanted);
  return (
    <ConfirmDialog
      title={`Create ${name}`}
      close={close}
      effect={`${wantedText(spec)}, for ${spec.customer}. ${kilowatts(watts)} are reserved until the release. If the capacity changed since the plan, the request is refused and nothing is reserved.`}
      commands={[createCommand(wanted)]}
      send={() => change("ClusterService/CreateCluster", { clusterId: name, spec, labels: labelsOf(wanted.labels) })}
      done={done}
    />
  );
}
