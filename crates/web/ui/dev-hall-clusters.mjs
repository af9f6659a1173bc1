// Clusters that fill the made-up hall.
import { iso } from "./dev-world.mjs";

/** Name, customer, state, where it begins and how much it takes, as shares of the hall. */
const MADE = [
  ["kepler", "acme", "READY", 0.36, 0.1],
  ["atlas-2", "borealis", "READY", 0.47, 0.07],
  ["foundry", "northlab", "DEGRADED", 0.55, 0.14],
  ["helios", "quanta-bio", "READY", 0.7, 0.05],
  ["tundra-9", "borealis", "READY", 0.76, 0.11],
];

export function hallClusters(world) {
  const names = [...world.nodes.keys()];
  if (names.length < 50) {
    return [];
  }
  return MADE.map(([name, customer, state, begin, share]) => {
    const from = Math.floor((begin * names.length) / 8) * 8;
    const members = names.slice(from, from + Math.max(8, Math.floor((share * names.length) / 8) * 8));
    for (const [index, member] of members.entries()) {
      const node = world.nodes.get(member);
      world.pinned?.add(member);
      world.enter(node, index % 61 === 17 && state === "DEGRADED" ? "FAILED" : "ACTIVE", Date.now() - 6e8);
      Object.assign(node.status.claim ?? {}, { customer });
    }
    const list = members.map((node) => ({ node, spare: false, state: world.nodes.get(node).status.state, standing: "handed-over" }));
    const sku = world.nodes.get(members[0]).spec.sku;
    return { name: `clusters/${name}`, spec: { customer, sku, nodes: members.length, spares: 0, bandwidth: "non-blocking" }, status: { state: `CLUSTER_STATE_${state}`, stateSince: iso(Date.now() - 5e8), readyNodes: members.length, reservedWatts: members.length * 10_200, history: [], replaced: [], members: list }, metadata: { resourceVersion: "3", createTime: iso(Date.now() - 6e8), labels: {} } };
  });
}
