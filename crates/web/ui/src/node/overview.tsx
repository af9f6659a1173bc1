import type { ComponentChildren } from "preact";
import { imageShort, labelsText } from "../names";
import { Facts, Panel } from "../parts/panel";
import { Empty, Problem } from "../parts/problem";
import { Prose } from "../parts/prose";
import { NodeStateBadge, StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, Copy, Dash, ResourceLink } from "../parts/text";
import { isOfSite } from "../session";
import { duration, protoSeconds, secondsBetween } from "../time";
import { plural } from "../units";
import { attemptOutcome, nodeHealth } from "../words";
import { Hints, NodeActions } from "./actions";
import { Phases } from "./phases";
import { PlacePanel } from "./place";
import { PowerPanel } from "./power";
import type { NodeView } from "./view";

export function Overview({ of }: { of: NodeView }) {
  const { explanation, explainError } = of;
  return (
    <>
      <Problem error={explainError} doing="explain the node" />
      {explanation && <Phases explanation={explanation} />}
      <div class="columns-2">
        <div class="stack">
          <Hints of={of} />
          <NodeActions of={of} />
          <Attempts of={of} />
          <History of={of} />
        </div>
        <div class="stack">
          <Status of={of} />
          {isOfSite() && <PowerPanel name={`nodes/${of.id}`} />}
          {isOfSite() && <PlacePanel id={of.id} />}
          <KnownFacts of={of} />
        </div>
      </div>
    </>
  );
}

function orDash(text: string | undefined): ComponentChildren {
  return text ? text : <Dash />;
}

function Status({ of: { node } }: { of: NodeView }) {
  const { status = {}, spec = {}, metadata = {} } = node;
  const { claim } = status;
  const bmc = spec.bmc ?? {};
  const rows: [string, ComponentChildren][] = [
    ["waits for", orDash(status.waitingFor)],
    ["reason", orDash(status.reason)],
    ["power", status.power || "unknown"],
    ["agent", status.agentConnected ? "connected" : "not connected"],
    ["address", status.address ? <Copy text={status.address} /> : <Dash />],
    ["customer", claim?.customer ? <ResourceLink name={`customers/${claim.customer}`} /> : <Dash />],
    [
      "claim",
      claim
        ? `generation ${claim.generation}, host ${claim.hostname}, ${plural(claim.sshAuthorizedKeys?.length ?? 0, "SSH key")}`
        : `none, generation ${status.claimGeneration ?? 0}`,
    ],
    ["image", claim ? <Copy text={claim.imageVersion ?? ""} shown={imageShort(claim.imageVersion)} /> : <Dash />],
    [
      "on disk",
      status.imageWritten ? <Copy text={status.imageWritten} shown={imageShort(status.imageWritten)} /> : <Dash />,
    ],
    ["SKU", orDash(spec.sku)],
  ];
  const ofSite: [string, ComponentChildren][] = [
    ["health", <StateBadge state={nodeHealth(status.health)} />],
    ["labels", orDash(labelsText(metadata.labels))],
    ["identity", identity(status.identity, status.tpmEk)],
    [
      "MACs",
      (status.macs ?? []).length > 0 ? (status.macs ?? []).map((mac) => <Copy key={mac} text={mac} />) : "unknown",
    ],
    ["boot MACs", spec.bootMacs?.length ? `${spec.bootMacs.join(" ")}, as given` : <Dash />],
    [
      "BMC",
      bmc.address ? <Copy text={bmc.address} shown={`${bmc.address} as ${bmc.username || "unknown"}`} /> : <Dash />,
    ],
    [
      "BMC pin",
      bmc.certificateSha256 ? (
        <Copy text={bmc.certificateSha256} shown={`${bmc.certificateSha256.slice(0, 23)}…`} />
      ) : (
        "not pinned yet"
      ),
    ],
    ["version", orDash(metadata.resourceVersion)],
    ["enrolled", <Ago time={metadata.createTime} />],
  ];
  return (
    <Panel title="Status">
      <Facts rows={isOfSite() ? [...rows, ...ofSite] : rows} />
    </Panel>
  );
}

function identity(known: string | undefined, ek: string | undefined): ComponentChildren {
  if (!known) {
    return "not known yet";
  }
  return known === "tpm" && ek ? (
    <>
      tpm, <Copy text={ek} shown={`${ek.slice(0, 23)}…`} />
    </>
  ) : (
    known
  );
}

function Attempts({ of: { explanation } }: { of: NodeView }) {
  const attempts = explanation?.attempts ?? [];
  if (attempts.length === 0) {
    return null;
  }
  return (
    <Panel title="Tried in this state" isFlush>
      <Table
        caption="Attempts in this state"
        rows={attempts}
        keyOf={(attempt, index) => `${attempt.effect} ${index}`}
        columns={[
          { title: "when", cell: ({ startTime }) => <Ago time={startTime} /> },
          { title: "effect", cell: ({ effect, number }) => `${effect} #${number ?? 0}` },
          { title: "outcome", cell: ({ outcome }) => <StateBadge state={attemptOutcome(outcome)} /> },
          { title: "took", cell: ({ startTime, endTime }) => took(startTime, endTime) },
          { title: "detail", isText: true, cell: ({ detail }) => orDash(detail) },
        ]}
      />
    </Panel>
  );
}

function took(start: string | undefined, end: string | undefined): ComponentChildren {
  const seconds = secondsBetween(start, end);
  return seconds === null ? <Dash /> : duration(seconds);
}

function History({ of: { explanation } }: { of: NodeView }) {
  const history = explanation?.history ?? [];
  if (explanation === undefined) {
    return null;
  }
  return (
    <Panel title="History" isFlush>
      {history.length === 0 ? (
        <Empty title="The node has not changed its state yet" />
      ) : (
        <Table
          caption="Changes of the state, newest first"
          rows={history}
          keyOf={(step, index) => `${step.time} ${index}`}
          columns={[
            { title: "when", cell: ({ time }) => <Ago time={time} /> },
            { title: "edge", cell: ({ edge }) => edge },
            { title: "to", cell: ({ toState }) => <NodeStateBadge state={toState} /> },
            {
              title: "after",
              cell: (step) => (
                <span>
                  {duration(protoSeconds(step.timeInFormerState))} <NodeStateBadge state={step.fromState} />
                </span>
              ),
            },
            { title: "reason", isWide: true, cell: ({ reason }) => orDash(reason) },
          ]}
        />
      )}
    </Panel>
  );
}

function KnownFacts({ of: { explanation } }: { of: NodeView }) {
  const facts = explanation?.facts ?? [];
  if (facts.length === 0) {
    return null;
  }
  return (
    <Panel title="Known facts" isFlush>
      <Table
        caption="Facts about the machine"
        rows={facts}
        keyOf={(fact) => fact.name ?? ""}
        columns={[
          { title: "fact", cell: ({ name }) => <span class="dim">{name}</span> },
          { title: "value", isText: true, cell: ({ value }) => <Prose text={value} /> },
          { title: "age", cell: ({ time }) => (time ? <Ago time={time} /> : <Dash />) },
        ]}
      />
    </Panel>
  );
}
