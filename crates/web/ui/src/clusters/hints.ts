import type { Cluster, ClusterMember } from "../api";
import { short } from "../names";
import { duration, millis } from "../time";
import { plural } from "../units";
import { isInUse, nameOf, stateOf } from "./words";

const LEASE_SOON_S = 7 * 86_400;
/** Lost nodes with a hint of their own. */
const NODES = 3;

/** What can be done, the most urgent first, as `cluster explain`. Commands are between backquotes. */
export function hints(cluster: Cluster, now: number, isOfSite: boolean): string[] {
  return [...(isOfSite ? siteHints(cluster) : []), ...stateHint(cluster, isOfSite), ...leaseHint(cluster, now)];
}

function siteHints(cluster: Cluster): string[] {
  const name = nameOf(cluster);
  const state = stateOf(cluster);
  const isWorking = ["reserved", "building", "validating", "degraded", "resizing", "reimaging"].includes(state);
  const lost = isWorking ? (cluster.status?.members ?? []).filter(({ standing }) => standing === "lost") : [];
  const found = lost.slice(0, NODES).map((member) => {
    const node = short("nodes", member.node);
    return `${node} is lost: its page says why. Retry it there, or replace it by another node`;
  });
  if (lost.length > NODES) {
    found.push(`also lost: ${plural(lost.length - NODES, "node")}`);
  }
  if (cluster.status?.partition?.fault && state !== "released") {
    found.push(
      "the partition is not proven: `rackwright events` shows the messages of the fabric manager, `rackwright fabric check` compares the cabling with the plan",
    );
  }
  return [...found, ...waitHint(name, cluster.status?.waitingKind)];
}

function waitHint(name: string, kind: string | undefined): string[] {
  switch (kind) {
    case "replacement":
      return ["no other node keeps every promise now: release or repair nodes; the search is repeated every minute"];
    case "network-fault":
      return [
        `the network tests between the nodes run again every ten minutes: repair the links that they name, or replace a node`,
      ];
    case "link-fault":
      return [
        `\`rackwright fabric faults\` names both ends of the cable to repair; \`rackwright cluster replace ${name} NODE --reason TEXT\` takes the node out`,
      ];
    case "doubt":
      return [
        "nothing is done to the cluster while one of its nodes is doubted: the page of the node says why and what to do",
      ];
    default:
      return [];
  }
}

/** Its erase does not go on by itself. */
function isDelayed({ state, standing }: ClusterMember): boolean {
  return (
    ["NODE_STATE_FAILED", "NODE_STATE_QUARANTINED", "NODE_STATE_MAINTENANCE"].includes(state ?? "") &&
    standing !== "freed"
  );
}

function stateHint(cluster: Cluster, isOfSite: boolean): string[] {
  const status = cluster.status ?? {};
  const state = stateOf(cluster);
  switch (state) {
    case "ready":
      return [`the hand-over pack below has the files for ${isOfSite ? "the customer's" : "your"} team`];
    case "degraded":
      return ["a lost node is replaced automatically as soon as a suitable node is free"];
    case "reimaging":
      return status.rollout?.stopped
        ? [
            "Resume tries the failed nodes again and continues, Roll back writes the former image, Reimage writes another image",
          ]
        : ["Roll back writes the former image to every node that does not have it"];
    case "failed":
      return isOfSite ? ["the cluster keeps its reservations: Retry builds it again, Release frees them"] : [];
    case "released":
      return isOfSite ? ["only the record is left: Delete removes it"] : [];
    case "releasing": {
      const held = (status.members ?? []).find(isDelayed);
      return held && isOfSite ? [`${short("nodes", held.node)} is not erased: its page shows the reason`] : [];
    }
    default:
      return [];
  }
}

function leaseHint(cluster: Cluster, now: number): string[] {
  const left = (millis(cluster.spec?.leaseEnd) - now) / 1_000;
  const state = stateOf(cluster);
  const isOver = state === "releasing" || state === "released";
  if (Number.isNaN(left) || left > LEASE_SOON_S || isOver) {
    return [];
  }
  const what = isInUse(state) ? "the cluster and its data" : "the cluster";
  return [`the lease ends in ${duration(left)}: ${what} will then be released automatically`];
}
