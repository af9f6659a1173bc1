import type { ClusterState, EraseMethod, Event, NodeHealth, NodeState, Operation, SettingStanding, Verdict } from "./api";

/** The meaning of a colour, as in the CLI. */
export type Tone = "good" | "busy" | "bad" | "dim";

/** A word with its colour. `key` selects the colour of one state among those of a tone. */
export interface Word {
  word: string;
  tone: Tone;
  key: string;
}

function toned(tone: Tone, word: string, key = tone as string): Word {
  return { word, tone, key };
}

const UNKNOWN = toned("dim", "unknown", "unknown");

/** In the order of a node's life; the states that need attention come last. */
export const NODE_STATES = [
  "available",
  "allocated",
  "imaging",
  "rebooting",
  "validating",
  "active",
  "reclaiming",
  "discovered",
  "inspecting",
  "maintenance",
  "quarantined",
  "failed",
] as const;

export type NodeStateWord = (typeof NODE_STATES)[number] | "unknown";

export function nodeStateWord(state: NodeState | undefined): NodeStateWord {
  const word = (state ?? "").replace("NODE_STATE_", "").toLowerCase();
  return (NODE_STATES as readonly string[]).includes(word) ? (word as NodeStateWord) : "unknown";
}

export function nodeStateTone(word: NodeStateWord): Tone {
  switch (word) {
    case "available":
    case "active":
      return "good";
    case "failed":
    case "quarantined":
      return "bad";
    case "maintenance":
    case "unknown":
      return "dim";
    default:
      return "busy";
  }
}

export function nodeState(word: NodeStateWord): Word {
  return { word, tone: nodeStateTone(word), key: word };
}

const HEALTHS: Record<NodeHealth, Word> = {
  NODE_HEALTH_UNSPECIFIED: UNKNOWN,
  NODE_HEALTH_OK: toned("good", "ok"),
  NODE_HEALTH_UNKNOWN: UNKNOWN,
  NODE_HEALTH_UNREACHABLE: toned("bad", "BMC silent"),
  NODE_HEALTH_LOGIN_REFUSED: toned("bad", "login refused"),
  NODE_HEALTH_DOUBTED: toned("bad", "doubted"),
};

export const HEALTH_WORDS = ["ok", "unknown", "BMC silent", "login refused", "doubted"] as const;

export function nodeHealth(health: NodeHealth | undefined): Word {
  return HEALTHS[health ?? "NODE_HEALTH_UNSPECIFIED"] ?? UNKNOWN;
}

export function clusterState(state: ClusterState | undefined): Word {
  const word = (state ?? "").replace("CLUSTER_STATE_", "").toLowerCase();
  switch (state) {
    case "CLUSTER_STATE_READY":
      return toned("good", word);
    case "CLUSTER_STATE_DEGRADED":
    case "CLUSTER_STATE_FAILED":
      return toned("bad", word);
    case "CLUSTER_STATE_RELEASED":
      return toned("dim", word);
    case undefined:
    case "CLUSTER_STATE_UNSPECIFIED":
      return UNKNOWN;
    default:
      return toned("busy", word);
  }
}

export function memberStanding(standing: string | undefined): Word {
  switch (standing) {
    case "handed-over":
      return toned("good", standing);
    case "lost":
      return toned("bad", standing);
    case "leaving":
    case "freed":
      return toned("dim", standing);
    default:
      return standing ? toned("busy", standing) : UNKNOWN;
  }
}

/** google.rpc.Code of an operation that was cancelled. */
const CANCELLED = 1;

export function operationState(operation: Operation): Word {
  if (!operation.done) {
    return operation.cancelRequested ? toned("busy", "cancelling") : toned("busy", "running");
  }
  if (operation.error === undefined) {
    return toned("good", "done");
  }
  return operation.error.code === CANCELLED ? toned("dim", "cancelled") : toned("bad", "failed");
}

const VERDICTS: Record<Verdict, Word> = {
  VERDICT_UNSPECIFIED: toned("bad", "unknown"),
  VERDICT_PASS: toned("good", "pass"),
  VERDICT_FAIL: toned("bad", "FAIL"),
  VERDICT_NOT_APPLICABLE: toned("dim", "n/a"),
};

export function verdict(value: Verdict | undefined): Word {
  return VERDICTS[value ?? "VERDICT_UNSPECIFIED"] ?? VERDICTS.VERDICT_UNSPECIFIED;
}

const STANDINGS: Record<SettingStanding, Word> = {
  SETTING_STANDING_UNSPECIFIED: toned("dim", "not read yet"),
  SETTING_STANDING_AS_WANTED: toned("good", "as wanted"),
  SETTING_STANDING_PENDING: toned("busy", "waits for a start"),
  SETTING_STANDING_DIFFERS: toned("bad", "differs"),
  SETTING_STANDING_READ_ONLY: toned("bad", "differs, read-only"),
  SETTING_STANDING_MISSING: toned("bad", "not offered"),
};

export function settingStanding(standing: SettingStanding | undefined): Word {
  return STANDINGS[standing ?? "SETTING_STANDING_UNSPECIFIED"] ?? STANDINGS.SETTING_STANDING_UNSPECIFIED;
}

export function firmwareVerdict(text: string | undefined): Word {
  switch (text) {
    case "up-to-date":
    case "newer":
    case "compliant":
      return toned("good", text);
    case "update":
      return toned("busy", text);
    case "unknown":
    case "":
    case undefined:
      return UNKNOWN;
    default:
      return toned("bad", text);
  }
}

export function severity(text: string | undefined): Word {
  return text === "critical" ? toned("bad", text) : toned("busy", text || "unknown");
}

export function attemptOutcome(text: string | undefined): Word {
  switch (text) {
    case "succeeded":
      return toned("good", text);
    case "running":
      return toned("busy", text);
    case "interrupted":
      return toned("dim", text);
    default:
      return toned("bad", text || "unknown");
  }
}

/** As in the CLI. */
export function eventTone({ severity }: Event): Tone {
  switch (severity) {
    case "EVENT_SEVERITY_ERROR":
      return "bad";
    case "EVENT_SEVERITY_WARNING":
      return "busy";
    default:
      return "dim";
  }
}

/** `nvme-sanitize-crypto` */
export function eraseMethod(method: EraseMethod | undefined): string {
  const word = (method ?? "").replace("ERASE_METHOD_", "").replaceAll("_", "-").toLowerCase();
  return word === "" || word === "unspecified" ? "unknown" : word;
}
