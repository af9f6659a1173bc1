import { Prose } from "../parts/prose";
import { Copy, Elapsed, Until } from "../parts/text";
import { Glyph, HealthBadge, NodeStateBadge } from "../parts/state";
import type { NodeView } from "./view";

/** The name, the state and its time, and why the node is where it is. */
export function NodeHead({ of: { id, node, explanation } }: { of: NodeView }) {
  const status = node.status ?? {};
  const isUnwell = status.health !== undefined && status.health !== "NODE_HEALTH_OK";
  return (
    <div class="node-head">
      <p class="crumbs">
        <a href="/nodes">Nodes</a>
      </p>
      <div class="node-title">
        <h1>
          <Copy text={id} label="Copy the name" />
        </h1>
        <span class="node-state">
          <NodeStateBadge state={status.state} />
        </span>
        <span class="dim">
          for <Elapsed since={status.stateSince} />
          {status.stateDeadline && (
            <>
              , deadline <Until time={status.stateDeadline} />
            </>
          )}
        </span>
        {isUnwell && <HealthBadge health={status.health} />}
      </div>
      {explanation?.summary && (
        <p class="node-summary">
          <Prose text={explanation.summary} />
        </p>
      )}
      {explanation === undefined && status.waitingFor && <p class="node-summary">It waits for {status.waitingFor}.</p>}
      {status.doubt && <Note text={`Its record is doubted, so nothing is done to it: ${status.doubt}`} />}
      {isUnwell && !status.doubt && status.healthReason && <Note text={status.healthReason} />}
    </div>
  );
}

function Note({ text }: { text: string }) {
  return (
    <p class="node-note">
      <Glyph tone="bad" />{" "}
      <span>
        <Prose text={text} />
      </span>
    </p>
  );
}
