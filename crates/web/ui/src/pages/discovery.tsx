import type { Discovery } from "../api";
import { change } from "../client";
import { FindingsPanel } from "../discovery/findings";
import { DiscoveriesPanel } from "../discovery/list";
import { StartDialog } from "../discovery/start";
import { countsText, idOf } from "../discovery/words";
import { last } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { AsCli, PageHead } from "../parts/panel";
import { Loading, Problem } from "../parts/problem";
import { location } from "../router";
import { mayCall, whyNotCall } from "../roles";
import { useCall } from "../use-call";

export function DiscoveryPage() {
  const { data, error, reload } = useCall("DiscoveryService/ListDiscoveries", { pageSize: 1_000 }, { everyMs: 3_000 });
  const list = data?.discoveries ?? [];
  const id = location.value.query.get("id") ?? "";
  const chosen = id === "" ? list[0] : list.find((one) => idOf(one) === id);
  const canStart = mayCall("DiscoveryService/StartDiscovery");
  const start = () => openDialog((close) => <StartDialog close={close} changed={reload} />);
  return (
    <>
      <PageHead
        title="Discovery"
        side={
          <>
            {chosen && chosen.phase !== "done" && mayCall("OperationService/CancelOperation") && (
              <Cancel discovery={chosen} changed={reload} />
            )}
            {canStart && (
              <Button kind="primary" why={whyNotCall("DiscoveryService/StartDiscovery")} onClick={start}>
                Start a discovery
              </Button>
            )}
          </>
        }
      >
        {list[0]
          ? `The newest: ${countsText(list[0])}`
          : "BMCs of the management network, and the machines behind them"}
      </PageHead>
      <Problem error={error} doing="list the discoveries" retry={reload} />
      {data === undefined && error === null && <Loading what="the discoveries" />}
      {data !== undefined && <DiscoveriesPanel discoveries={list} chosen={chosen ? idOf(chosen) : ""} />}
      {chosen && <FindingsPanel key={chosen.name} discovery={chosen} />}
      {id !== "" && data !== undefined && chosen === undefined && (
        <p class="dim">There is no discovery {id} any more: the newest 50 ended ones are kept.</p>
      )}
      <AsCli
        commands={[
          "rackwright discover list",
          chosen ? `rackwright discover show ${idOf(chosen)}` : "rackwright discover start --range 10.0.0.0/22",
        ]}
      />
    </>
  );
}

function Cancel({ discovery, changed }: { discovery: Discovery; changed(): void }) {
  const open = () =>
    openDialog((close) => (
      <ConfirmDialog
        title="Cancel the discovery"
        close={close}
        effect="The search ends. The findings so far are kept, and can be enrolled."
        isDanger
        commands={[`rackwright operation cancel ${last(discovery.operation || discovery.name)}`]}
        send={() =>
          change("OperationService/CancelOperation", { name: discovery.operation || `operations/${idOf(discovery)}` })
        }
        done={changed}
      />
    ));
  return <Button onClick={open}>Cancel</Button>;
}
