import type { Node } from "../api";
import { imageShort, short } from "../names";
import { millis } from "../time";
import { nodeHealth, nodeStateWord, type NodeStateWord } from "../words";

/** What the lists show of a node: small, because a console may hold 100,000. */
export interface Row {
  id: string;
  state: NodeStateWord;
  /** Milliseconds since the epoch; NaN: unknown. */
  since: number;
  deadline: number;
  health: string;
  power: string;
  agent: boolean;
  sku: string;
  customer: string;
  image: string;
  claimed: boolean;
  releaseRequested: boolean;
  waitsFor: string;
  /** Why it is failed, quarantined, held, doubted or silent. */
  reason: string;
  address: string;
  labels: Record<string, string>;
  version: string;
}

/** Texts that many nodes share are stored once. */
const shared = new Map<string, string>();

function share(text: string | undefined): string {
  const given = text ?? "";
  const known = shared.get(given);
  if (known !== undefined) {
    return known;
  }
  shared.set(given, given);
  return given;
}

export function rowOf(node: Node): Row {
  const status = node.status ?? {};
  const doubt = status.doubt ? `doubted: ${status.doubt}` : "";
  return {
    id: short("nodes", node.name),
    state: nodeStateWord(status.state),
    since: millis(status.stateSince),
    deadline: millis(status.stateDeadline),
    health: nodeHealth(status.health).word,
    power: share(status.power || "unknown"),
    agent: status.agentConnected ?? false,
    sku: share(node.spec?.sku),
    customer: share(status.claim?.customer),
    image: share(imageShort(status.claim?.imageVersion ?? status.imageWritten)),
    claimed: status.claim !== undefined,
    releaseRequested: status.claim?.releaseRequested ?? false,
    waitsFor: share(status.waitingFor),
    reason: share(doubt || status.reason || (status.waitingFor ? "" : status.healthReason)),
    address: status.address ?? "",
    labels: node.metadata?.labels ?? {},
    version: node.metadata?.resourceVersion ?? "",
  };
}

/** The CLI's last column: why the node is where it is. */
export function words(row: Row): string {
  return row.reason || row.waitsFor;
}

/** The kind of a wait: the text without figures and names, so that nodes with the same wait count together. */
export function waitKind(text: string): string {
  return text.replace(/^(the next try of [^:]*|[^:,]*)[:,].*$/s, "$1");
}
