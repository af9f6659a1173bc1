import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { findPorts, type NodePort } from "../fabric/ports";
import { NoSite } from "../hall/no-site";
import { isWithoutSite, useRacks } from "../hall/topology";
import { asApiError, type ApiError } from "../errors";
import { Button } from "../parts/button";
import { Facts, Panel } from "../parts/panel";
import { Loading, Problem } from "../parts/problem";
import { Dash, NodeLink } from "../parts/text";
import { racksOf, type Machine, type Rack } from "../racks/model";
import { unitsText } from "../racks/picture";
import { link } from "../router";

/** Where the node stands: its rack, its neighbours, and its switch ports. */
export function PlacePanel({ id }: { id: string }) {
  const { data, error, reload } = useRacks();
  const rack = useMemo(() => racksOf(data ?? []).find(({ machines }) => machines.some((some) => some.isNode && some.name === id)), [data, id]);
  return (
    <Panel title="Where it stands">
      {isWithoutSite(error) ? <NoSite what="racks and cables" /> : <Problem error={error} doing="read the racks" retry={reload} />}
      {data === undefined && error === null && <Loading what="the racks" />}
      {data !== undefined && rack === undefined && <p class="dim">Unknown: the site file has no node {id}.</p>}
      {rack && <InRack rack={rack} id={id} />}
      {data !== undefined && rack && <Ports id={id} />}
    </Panel>
  );
}

function InRack({ rack, id }: { rack: Rack; id: string }) {
  const sorted = [...rack.machines].sort((a, b) => a.unit - b.unit);
  const at = sorted.findIndex((some) => some.isNode && some.name === id);
  const self = sorted[at];
  const isKnown = self !== undefined && self.unit > 0;
  const neighbour = (machine: Machine | undefined) => (isKnown && machine !== undefined && machine.unit > 0 ? <Named machine={machine} /> : <Dash />);
  const rows: [string, ComponentChildren][] = [
    ["rack", <a href={link("/racks", { q: rack.name, size: "large" })}>{rack.name}</a>],
    ["room", rack.room],
    ["units", isKnown ? unitsText(self.unit, self.height) : "unknown"],
    ["above", neighbour(sorted[at + 1])],
    ["below", neighbour(sorted[at - 1])],
    ["cooling", rack.loop === "" ? "air" : `loop ${rack.loop}`],
    ["PDUs", rack.pdus.length === 0 ? "unknown" : rack.pdus.map(({ name, feed }) => (feed ? `${name} (feed ${feed})` : name)).join(", ")],
  ];
  return <Facts rows={rows} />;
}

function Named({ machine }: { machine: Machine }) {
  return machine.isNode ? <NodeLink id={machine.name} /> : <a class="name" href={link("/fabric", { switch: machine.name })}>{machine.name}</a>;
}

function Ports({ id }: { id: string }) {
  const [ports, setPorts] = useState<NodePort[] | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const search = async () => {
    setBusy(true);
    setError(null);
    try {
      setPorts(await findPorts(id));
    } catch (failure) {
      setError(asApiError(failure, "GetTopology"));
    }
    setBusy(false);
  };
  if (ports === null) {
    return (
      <>
        <Problem error={error} doing="read the cables" />
        <div>
          <Button isBusy={isBusy} onClick={() => void search()}>
            {isBusy ? "Reading the cables of the leaves" : "Show its switches"}
          </Button>
        </div>
      </>
    );
  }
  if (ports.length === 0) {
    return <p class="dim">The site file has no cable from this node to a switch.</p>;
  }
  return (
    <Facts
      rows={ports.map(({ leaf, rail, fabric, labels }): [string, ComponentChildren] => [
        rail === undefined ? fabric || "leaf" : `rail ${rail}`,
        <span key={leaf}>
          <a class="name" href={link("/fabric", { switch: leaf })}>
            {leaf}
          </a>{" "}
          <span class="dim small">
            {labels.length === 1 ? "cable" : "cables"} {labels.join(", ")}
          </span>
        </span>,
      ])}
    />
  );
}
