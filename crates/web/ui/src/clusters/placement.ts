import type { ClusterMember, HandoverFile } from "../api";
import { short } from "../names";

/** Where a node is in the fabric and in the hall. */
export interface Place {
  pod: string;
  unit: string;
  rack: string;
  leaves: string[];
}

export interface Unit {
  pod: string;
  unit: string;
  leaves: string[];
  members: ClusterMember[];
}

/** The places of the nodes, from the labels that the hand-over pack has for Kubernetes. */
export function placesOf(files: HandoverFile[]): Map<string, Place> {
  const places = new Map<string, Place>();
  const text = files.find(({ name }) => name === "kubernetes/nodes.yaml")?.text ?? "";
  for (const document of text.split(/^---$/m)) {
    const labels = new Map<string, string>();
    for (const [, key = "", value = ""] of document.matchAll(/^ {4}rackwright\/([a-z0-9-]+): "?([^"\n]*)"?$/gm)) {
      labels.set(key, value);
    }
    const node = labels.get("node");
    if (node !== undefined) {
      const leaves = [...labels].filter(([key]) => key.startsWith("rail-")).map(([, leaf]) => leaf);
      places.set(node, {
        pod: labels.get("pod") ?? "",
        unit: labels.get("unit") ?? "",
        rack: labels.get("rack") ?? "",
        leaves,
      });
    }
  }
  return places;
}

/** The nodes by unit, in the order of pods and units; nodes of unknown place come last. */
export function unitsOf(members: ClusterMember[], places: Map<string, Place>): Unit[] {
  const units = new Map<string, Unit>();
  for (const member of members) {
    const place = places.get(short("nodes", member.node));
    const key = place === undefined ? "~" : `${place.pod}/${place.unit}`;
    const known = units.get(key) ?? {
      pod: place?.pod ?? "",
      unit: place?.unit ?? "",
      leaves: place?.leaves ?? [],
      members: [],
    };
    known.members.push(member);
    units.set(key, known);
  }
  const byName = (a: ClusterMember, b: ClusterMember) => ((a.node ?? "") < (b.node ?? "") ? -1 : 1);
  return [...units]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, unit]) => ({ ...unit, members: unit.members.sort(byName) }));
}
