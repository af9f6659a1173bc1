import {
  clusterState,
  nodeHealth,
  nodeState,
  nodeStateWord,
  operationState,
  type NodeStateWord,
  type Tone,
  type Word,
} from "../words";
import type { ClusterState, NodeHealth, NodeState, Operation } from "../api";

/** The shape says the same as the colour: a disc is good, a half disc works, a triangle is bad, a ring is idle. */
export function Glyph({ tone }: { tone: Tone }) {
  return <span class={`glyph ${tone}`} aria-hidden="true" />;
}

/** A state as everywhere in the console: one shape, one colour, one word. */
export function StateBadge({ state }: { state: Word }) {
  return (
    <span class="badge" data-tone={state.tone} data-state={state.key}>
      <Glyph tone={state.tone} />
      <span>{state.word}</span>
    </span>
  );
}

export function NodeStateBadge({ state }: { state: NodeState | NodeStateWord | undefined }) {
  const word = state?.startsWith("NODE_STATE_") || state === undefined ? nodeStateWord(state as NodeState) : state;
  return <StateBadge state={nodeState(word as NodeStateWord)} />;
}

export function HealthBadge({ health }: { health: NodeHealth | undefined }) {
  return <StateBadge state={nodeHealth(health)} />;
}

export function ClusterStateBadge({ state }: { state: ClusterState | undefined }) {
  return <StateBadge state={clusterState(state)} />;
}

export function OperationBadge({ operation }: { operation: Operation }) {
  return <StateBadge state={operationState(operation)} />;
}
