// Where clusters of the made-up world are placed: plans, pictures and hand-over packs.
import { Refusal } from "./dev-calls.mjs";

/** The units and pods of the nodes. */
export class Placement {
  constructor(world) {
    this.world = world;
    this.places = new Map(
      [...world.nodes.keys()].map((name, index) => [
        name,
        { unit: Math.floor(index / 32) + 1, pod: Math.floor(index / 128) + 1, rack: Math.floor(index / 8) + 1 },
      ]),
    );
  }

  /** Free nodes of a SKU. */
  free(sku) {
    return [...this.world.nodes.values()]
      .filter(
        (node) =>
          node.spec.sku === sku && node.status.state === "NODE_STATE_AVAILABLE" && !this.world.pinned.has(node.name),
      )
      .map(({ name }) => name);
  }

  plan({ sku, nodes = 0, spares = 0, customer }) {
    if (!customer) {
      throw new Refusal("invalid_argument", "the request has a fault", "", [
        { field: "spec.customer", description: "is required" },
      ]);
    }
    const free = this.free(sku);
    if (free.length < nodes + spares) {
      return {
        fits: false,
        refusal: `${nodes} nodes and ${spares} spares of ${sku} do not fit without blocking: unit su03 gives ${Math.min(7, free.length)} of 32 non-blocking nodes, ${free.length} nodes are free. What would fit: ${Math.floor(free.length * 0.8)} nodes non-blocking; ${free.length} nodes best-effort`,
      };
    }
    const picked = free.slice(0, nodes + spares);
    return {
      fits: true,
      nodes: picked.slice(0, nodes).map((name) => name.slice(6)),
      spares: picked.slice(nodes).map((name) => name.slice(6)),
      picture: this.picture(picked, nodes),
      reservedWatts: picked.length * 10_200,
    };
  }

  picture(picked, nodes) {
    const lines = [];
    let pod = 0;
    const units = new Map();
    for (const name of this.world.nodes.keys()) {
      const { unit } = this.places.get(name);
      units.set(unit, [...(units.get(unit) ?? []), name]);
    }
    for (const [unit, names] of units) {
      if (!names.some((name) => picked.includes(name))) {
        continue;
      }
      if (this.places.get(names[0]).pod !== pod) {
        pod = this.places.get(names[0]).pod;
        lines.push(`pod${pod}: 16 links to cores above 8 spines on each rail`);
      }
      const cell = (name) =>
        picked.includes(name)
          ? picked.indexOf(name) < nodes
            ? "#"
            : "s"
          : this.world.nodes.get(name).status.claim
            ? "x"
            : this.world.state(this.world.nodes.get(name)) === "AVAILABLE"
              ? "."
              : "-";
      const cells = names.map(cell).join("");
      lines.push(
        `  su${String(unit).padStart(2, "0")}       ${cells}  ${cells.replace(/[^#s]/g, "").length} nodes, uplinks 0-${cells.replace(/[^#s]/g, "").length - 1}`,
      );
    }
    return `${lines.join("\n")}\n# node  s spare  . free  x taken  - out of service\n`;
  }

  pack(cluster) {
    if (cluster.status.state === "CLUSTER_STATE_RELEASED") {
      throw new Refusal(
        "failed_precondition",
        `${cluster.name.slice(9)} is released: a released cluster has no hand-over pack`,
      );
    }
    const two = (number) => String(number).padStart(2, "0");
    const labels = ({ node, spare }) => {
      const place = this.places.get(node);
      const rails = [0, 1, 2, 3].map((rail) => `    rackwright/rail-${rail}: leaf-su${place.unit}-r${rail}`);
      return [
        "---",
        "apiVersion: v1",
        "kind: Node",
        "metadata:",
        `  name: ${node.slice(6)}`,
        "  labels:",
        `    rackwright/cluster: ${cluster.name.slice(9)}`,
        `    rackwright/node: ${node.slice(6)}`,
        `    rackwright/pod: pod${two(place.pod)}`,
        `    rackwright/rack: r${two(place.rack)}`,
        ...rails,
        `    rackwright/spare: "${Boolean(spare)}"`,
        `    rackwright/unit: su${two(place.unit)}`,
      ].join("\n");
    };
    const file = (name, text = `# ${name} of ${cluster.name.slice(9)}\n`) => ({ name, text });
    return {
      files: [
        file("README.md"),
        file("slurm/topology.conf"),
        file("slurm/topology.yaml"),
        file("slurm/nodes.conf"),
        file("slurm/gres.conf"),
        file("kubernetes/nodes.yaml", cluster.status.members.map(labels).join("\n")),
        file("kubernetes/kueue-topology.yaml"),
        file("nccl/nccl.conf"),
        file("nccl/hostfile"),
        file("ansible/inventory.yaml"),
        file("fabric/ports.csv"),
        file("fabric/partition.md"),
        file("power.md"),
        file("validation.md"),
      ],
    };
  }

  planResize({ name, size }) {
    const cluster = this.find(name);
    const { members } = cluster.status;
    const wanted = (size.nodes ?? cluster.spec.nodes) + (size.spares ?? cluster.spec.spares ?? 0);
    const named = size.leave ?? [];
    const fewer = Math.max(0, members.length - named.length - wanted);
    const rest = members.filter(({ node }) => !named.includes(node)).map(({ node }) => node);
    const leave = [...named, ...rest.slice(rest.length - fewer)];
    const free = this.free(cluster.spec.sku);
    const more = wanted - (members.length - leave.length);
    if (more > free.length) {
      return {
        fits: false,
        refusal: `${more} further nodes do not fit: ${free.length} nodes of ${cluster.spec.sku} are free. What would fit: ${members.length + free.length} nodes`,
      };
    }
    const join = free.slice(0, more);
    const all = [...rest.slice(0, rest.length - fewer), ...join];
    return {
      fits: true,
      join: join.map((one) => one.slice(6)),
      leave: leave.map((one) => one.slice(6)),
      picture: this.picture(all, all.length),
      reservedWatts: (members.length + join.length) * 10_200,
    };
  }
}
