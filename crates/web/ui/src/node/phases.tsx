import type { Explanation } from "../api";
import { Panel } from "../parts/panel";
import { Glyph } from "../parts/state";
import { duration, everySecond, millis, protoSeconds, stamp } from "../time";
import { nodeStateTone, nodeStateWord, type NodeStateWord } from "../words";

interface Phase {
  state: NodeStateWord;
  seconds: number;
  /** When the node entered it; empty: before the kept history. */
  since: string;
  isNow: boolean;
}

const MOST = 10;

/** The phases of the node, oldest first, and the present one at the end. */
function phasesOf({ history = [], node }: Explanation, now: number): Phase[] {
  const phases: Phase[] = [...history].reverse().map((step, index, steps) => ({
    state: nodeStateWord(step.fromState),
    seconds: protoSeconds(step.timeInFormerState),
    since: steps[index - 1]?.time ?? "",
    isNow: false,
  }));
  const since = node?.status?.stateSince ?? "";
  phases.push({
    state: nodeStateWord(node?.status?.state),
    seconds: Math.max(0, (now - millis(since)) / 1_000) || 0,
    since,
    isNow: true,
  });
  return phases.slice(-MOST);
}

/** Long phases are shown longer, but never so long that a short one cannot be read. */
function weight(seconds: number): number {
  return 1 + Math.log10(1 + seconds);
}

/** The way of the node through its states, with the time in each. */
export function Phases({ explanation }: { explanation: Explanation }) {
  const phases = phasesOf(explanation, everySecond.value);
  return (
    <Panel title="Phases">
      <ol class="node-phases">
        {phases.map(({ state, seconds, since, isNow }, index) => (
          <li
            key={`${since} ${index}`}
            data-state={state}
            class={isNow ? "now" : undefined}
            style={{ flexGrow: String(weight(seconds)) }}
            title={since === "" ? undefined : `since ${stamp(since)}`}
            aria-current={isNow ? "step" : undefined}
          >
            <span class="node-phase-bar" />
            <span class="node-phase-word">
              <Glyph tone={nodeStateTone(state)} /> {state}
            </span>
            <span class="dim small">{seconds < 60 && isNow ? `${Math.floor(seconds)} s` : duration(seconds)}</span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
