import type { Cluster, ClusterTransition } from "../api";
import { Glyph } from "../parts/state";
import { Elapsed } from "../parts/text";
import { duration, protoSeconds, secondsBetween } from "../time";
import { clusterState, type Tone } from "../words";
import { stateOf, type ClusterStateWord } from "./words";

const BUILD: ClusterStateWord[] = ["reserved", "building", "validating", "ready"];
const END: ClusterStateWord[] = ["releasing", "released"];

interface Phase {
  word: ClusterStateWord;
  /** Seconds that were spent in it; null: unknown, or it is not over. */
  spent: number | null;
  standing: "past" | "now" | "next";
}

function wordOf(state: ClusterTransition["fromState"]): string {
  return (state ?? "").replace("CLUSTER_STATE_", "").toLowerCase();
}

/** The time in a state, over all visits. */
function spentIn(history: ClusterTransition[], word: string): number | null {
  const visits = history.filter(({ fromState }) => wordOf(fromState) === word);
  return visits.length === 0 ? null : visits.reduce((sum, step) => sum + protoSeconds(step.timeInFormerState), 0);
}

/** The way of the cluster so far, and what is left of it. */
function phasesOf(cluster: Cluster): Phase[] {
  const state = stateOf(cluster);
  const history = cluster.status?.history ?? [];
  const way = END.includes(state) ? [...BUILD, ...END] : BUILD.includes(state) ? BUILD : [...BUILD, state];
  const wasReady = history.some(({ toState }) => wordOf(toState) === "ready");
  const at = way.indexOf(state);
  return way
    .filter(
      (word) => word === state || BUILD.indexOf(word) < 3 || wasReady || (!END.includes(state) && state !== "failed"),
    )
    .map((word) => {
      const index = way.indexOf(word);
      return { word, spent: spentIn(history, word), standing: index === at ? "now" : index < at ? "past" : "next" };
    });
}

function toneOf({ word, standing }: Phase): Tone {
  if (standing === "next") {
    return "dim";
  }
  return standing === "past" ? "good" : clusterState(`CLUSTER_STATE_${word.toUpperCase()}` as never).tone;
}

/** The states of the cluster with the time in each. */
export function Phases({ cluster }: { cluster: Cluster }) {
  return (
    <ol class="way" aria-label="States">
      {phasesOf(cluster).map((phase) => (
        <li
          key={phase.word}
          data-tone={toneOf(phase)}
          data-standing={phase.standing}
          aria-current={phase.standing === "now" ? "step" : undefined}
        >
          <Glyph tone={toneOf(phase)} />
          <span class="way-word">{phase.word}</span>
          <span class="way-time">
            {phase.standing === "now" ? (
              <Elapsed since={cluster.status?.stateSince} />
            ) : phase.spent === null ? (
              ""
            ) : (
              duration(phase.spent)
            )}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Seconds from the request to the first hand-over; null: not known. */
export function handOverSeconds({ metadata, status }: Cluster): number | null {
  const steps = [...(status?.history ?? [])].reverse();
  const first = steps.find(
    ({ fromState, toState }) => wordOf(toState) === "ready" && wordOf(fromState) === "validating",
  );
  return first === undefined ? null : secondsBetween(metadata?.createTime, first.time);
}
