import { useState } from "preact/hooks";
import type { ClusterPlan, Operation } from "../api";
import { call, change } from "../client";
import { useCustomers } from "../clusters/customers";
import { kilowatts, wantedText } from "../clusters/words";
import { asApiError, type ApiError } from "../errors";
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
  const [planned, setPlanned] = useState<{ key: string; plan: ClusterPlan } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isPlanning, setPlanning] = useState(false);
  const [started, setStarted] = useState<Operation | null>(null);
  const customers = useCustomers();
  const customer = wanted.customer.trim();
  const capacity = useCall("ClusterService/GetCapacity", { customer }, { isWanted: customers.includes(customer) });
  const skus = capacity.data?.skus ?? [];
  const set = (changes: Partial<Wanted>) => setWanted({ ...wanted, ...changes });
  const isCurrent = planned?.key === planKey(wanted);
  const whyNoPlan = whyNotPlan(wanted);
  const whyNoOrder =
    whyNotCall("ClusterService/CreateCluster") ||
    whyNoPlan ||
    (!planned || !isCurrent ? "Plan it first" : !planned.plan.fits ? "It does not fit" : whyNotCreate(wanted));
  const plan = async () => {
    setPlanning(true);
    setError(null);
    try {
      const found = await call("ClusterService/PlanCluster", { clusterId: wanted.name.trim(), spec: specOf(wanted) });
      setPlanned({ key: planKey(wanted), plan: found });
    } catch (failure) {
      setError(asApiError(failure, "plan"));
    }
    setPlanning(false);
  };
  const order = () => openDialog((close) => <OrderDialog wanted={wanted} watts={planned?.plan.reservedWatts} close={close} done={setStarted} />);
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
      <PageHead title="Create a cluster">Nodes, links, power, cooling and a partition key are reserved at once, all or nothing.</PageHead>
      <div class="order">
        <Panel title="1. Placement">
          <PlacementFields wanted={wanted} set={set} skus={skus} customers={customers} />
          <Problem error={capacity.error} doing="read the capacity" />
          <div>
            <Button kind={isCurrent ? "plain" : "primary"} why={whyNoPlan} isBusy={isPlanning} onClick={() => void plan()}>
              Plan
            </Button>
          </div>
          <Problem error={error} doing="plan the cluster" />
        </Panel>
        <PlanPanel plan={planned?.plan ?? null} isOld={planned !== null && !isCurrent} sku={skus.find(({ sku }) => sku === wanted.sku)} bandwidth={wanted.bandwidth.trim()} />
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

function OrderDialog({ wanted, watts, close, done }: { wanted: Wanted; watts: number | undefined; close(): void; done(started: Operation): void }) {
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
