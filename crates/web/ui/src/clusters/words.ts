import type { Cluster, ClusterMember, ClusterPartition, ClusterSpec, RolloutStatus } from "../api";
import { short } from "../names";
import { duration, millis, stamp } from "../time";
import { plural } from "../units";
import type { Tone, Word } from "../words";

/** Names that a sentence lists. */
const LISTED = 8;

export const CLUSTER_STATES = [
  "reserved",
  "building",
  "validating",
  "ready",
  "degraded",
  "resizing",
  "reimaging",
  "releasing",
  "released",
  "failed",
] as const;
export type ClusterStateWord = (typeof CLUSTER_STATES)[number] | "unknown";

export function stateOf(cluster: Cluster): ClusterStateWord {
  const word = (cluster.status?.state ?? "").replace("CLUSTER_STATE_", "").toLowerCase();
  return (CLUSTER_STATES as readonly string[]).includes(word) ? (word as ClusterStateWord) : "unknown";
}

/** The customer has the cluster. */
export function isInUse(state: ClusterStateWord): boolean {
  return ["ready", "degraded", "resizing", "reimaging"].includes(state);
}

export function nameOf(cluster: Cluster): string {
  return short("clusters", cluster.name);
}

export function listed(names: string[]): string {
  const shown = names.slice(0, LISTED).join(", ");
  return names.length > LISTED ? `${shown} and ${names.length - LISTED} more` : shown;
}

/** `48 nodes of dgx-h100 and 1 spare, non-blocking` */
export function wantedText(spec: ClusterSpec | undefined): string {
  return `${plural(spec?.nodes ?? 0, "node")} of ${spec?.sku ?? "an unknown SKU"} and ${plural(spec?.spares ?? 0, "spare")}, ${spec?.bandwidth || "non-blocking"}`;
}

export function wantedNodes({ spec }: Cluster): number {
  return (spec?.nodes ?? 0) + (spec?.spares ?? 0);
}

export function kilowatts(watts: number | undefined): string {
  return watts === undefined ? "unknown" : `${(watts / 1_000).toFixed(1)} kW`;
}

/** `47 handed-over, 1 lost`, the most frequent first. */
export function standingsText(members: ClusterMember[]): string {
  const counts = new Map<string, number>();
  members.forEach(({ standing = "unknown" }) => counts.set(standing, (counts.get(standing) ?? 0) + 1));
  return [...counts]
    .sort(([a, some], [b, others]) => others - some || a.localeCompare(b))
    .map(([standing, number]) => `${number} ${standing}`)
    .join(", ");
}

/** How far the proof of the partition is. */
export function proof(partition: ClusterPartition | undefined): { word: Word; why: string } {
  const toned = (tone: Tone, word: string): Word => ({ tone, word, key: tone });
  if (partition === undefined || !partition.key) {
    return { word: toned("dim", "none"), why: "" };
  }
  if (partition.fault) {
    return { word: toned("bad", "not proven"), why: partition.fault };
  }
  if (partition.provenTime !== undefined) {
    return { word: toned("good", "proven"), why: "" };
  }
  return { word: toned("busy", "not proven"), why: partition.progress ?? "" };
}

/** `ends 2026-12-31T18:00:00Z (33d 02h left)`; over: a cluster that is released. */
export function leaseText(cluster: Cluster, now: number): string {
  if (["releasing", "released"].includes(stateOf(cluster))) {
    return "over";
  }
  const end = cluster.spec?.leaseEnd;
  if (end === undefined) {
    return "no end";
  }
  const left = (millis(end) - now) / 1_000;
  return `ends ${stamp(end)} (${duration(Math.abs(left))} ${left >= 0 ? "left" : "past its end"})`;
}

/** `12 of 48 nodes done, 1 failed` */
export function rolloutText({ done = 0, of = 0, failed = 0, isBack }: RolloutStatus): string {
  const parts = [
    `${done} of ${plural(of, "node")} done`,
    failed > 0 ? `${failed} failed` : "",
    isBack ? "back to the former image" : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/** `releasing alpha destroys ...`: what a release destroys and frees, as the CLI says it. */
export function releaseLoses({ spec, status }: Cluster): string {
  const nodes = (status?.members ?? []).map(({ node }) => short("nodes", node));
  const names = nodes.length > 0 ? ` (${listed(nodes)})` : "";
  const partition = status?.partition?.key ? ` and partition ${status.partition.key}` : "";
  return `all data on the drives of ${plural(nodes.length, "node")}${names} of ${spec?.customer ?? ""}${partition}`;
}

const EDGES: Record<string, string> = {
  started: "work began",
  built: "every node checked, partition in place",
  rebuilt: "a part is built again",
  handedover: "handed over to the customer",
  degraded: "a node or link is out of order",
  resized: "a resize was requested",
  reimaged: "a reimage was requested",
  restored: "all nodes in order again",
  released: "a release was requested",
  freed: "every node erased, no port has the key",
  failed: "the build missed its deadline",
  retried: "the build begins again",
};

export function edgeText(edge: string | undefined): string {
  return EDGES[edge ?? ""] ?? edge ?? "";
}
