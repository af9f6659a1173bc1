import { useMemo, useState } from "preact/hooks";
import type { ExplainPowerResponse, PowerLoss } from "../api";
import { kw } from "../hall/pdus";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Loading, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { ResourceLink } from "../parts/text";
import { short } from "../names";
import { plural } from "../units";
import { Ask } from "./ask";
import { afterLoss, branchesOf, useExplanation } from "./paths";
import { StepTree } from "./steps";

/** The path of power to a node, a cluster or a customer. */
export function ExplainPanel({ name }: { name: string }) {
  const explained = useExplanation(name);
  return (
    <Panel title="Path of power to a node, a cluster or a customer" isFlush>
      <div class="power-ask">
        <Ask name={name} />
        {name === "" && <p class="dim">The path from the utility, the watts at each step, and the effect of the loss of a feed.</p>}
        <Problem error={explained.error} doing={`explain the power of ${short("nodes", name)}`} retry={explained.reload} />
        {name !== "" && explained.data === undefined && explained.error === null && <Loading what="the path of power" />}
      </div>
      {explained.data && <Explained key={name} of={explained.data} />}
    </Panel>
  );
}

function Explained({ of }: { of: ExplainPowerResponse }) {
  const [lost, setLost] = useState("");
  const branches = useMemo(() => branchesOf(of.steps ?? []), [of]);
  const after = useMemo(() => (lost === "" ? null : afterLoss(of, lost)), [of, lost]);
  const losses = of.losses ?? [];
  return (
    <>
      <div class="power-ask">
        <p>
          <ResourceLink name={of.name} />: {plural(of.nodeCount ?? 0, "node")}, at most <strong>{kw(of.reservedWatts ?? 0)}</strong> together;{" "}
          {of.measuredWatts === undefined ? "not all nodes are measured" : <>measured <strong>{kw(of.measuredWatts)}</strong></>}.
        </p>
        {(of.alarms ?? []).map((alarm) => (
          <p key={alarm.name} class="node-note">
            <Glyph tone={alarm.severity === "critical" ? "bad" : "busy"} />
            <span>
              {alarm.message} <span class="dim">{alarm.advice}</span>
            </span>
          </p>
        ))}
        <Losses losses={losses} steps={of.steps ?? []} lost={lost} setLost={setLost} />
      </div>
      <StepTree branches={branches} lost={lost} after={after} isLarge={(of.steps ?? []).length > 60} />
    </>
  );
}

function Losses({ losses, steps, lost, setLost }: { losses: PowerLoss[]; steps: { feed?: string }[]; lost: string; setLost(feed: string): void }) {
  const feeds = losses.length > 0 ? losses.map(({ feed }) => feed ?? "") : [...new Set(steps.map(({ feed }) => feed ?? ""))].filter(Boolean).sort();
  const loss = losses.find(({ feed }) => feed === lost);
  const why = losses.length > 0 ? "" : "The API tells the effect of a loss for a single node only";
  if (feeds.length === 0) {
    return null;
  }
  return (
    <div class="power-losses">
      {feeds.map((feed) => (
        <Button key={feed} kind={feed === lost ? "primary" : "plain"} why={why} onClick={() => setLost(feed === lost ? "" : feed)}>
          {feed === lost ? `Restore feed ${feed}` : `Lose feed ${feed}`}
        </Button>
      ))}
      <span role="status">
        {loss && (
          <span class="badge" data-tone={loss.survives ? "good" : "bad"}>
            <Glyph tone={loss.survives ? "good" : "bad"} />
            <span>{lossText(loss)}</span>
          </span>
        )}
        {!loss && losses.length > 0 && <span class="dim">Nothing is switched: the picture shows what would happen.</span>}
      </span>
    </div>
  );
}

/** As the CLI. */
function lossText({ feed, live = 0, liveWatts = 0, survives }: PowerLoss): string {
  return `Feed ${feed} lost: ${plural(live, "PSU")} ${live === 1 ? "remains and supplies" : "remain and supply"} ${kw(liveWatts)}: ${survives ? "the node stays on" : "the node goes down"}`;
}
