// Clusters of the made-up world: their nodes, states and changes.
import { Refusal } from "./dev-calls.mjs";
import { Placement } from "./dev-placement.mjs";
import { iso, versionOf } from "./dev-world.mjs";

const DAY = 864e5;
/** Name, customer, state, nodes, spares, age in days. */
const MADE = [
  ["alpha", "acme", "READY", 32, 1, 41],
  ["borealis-7", "borealis", "DEGRADED", 24, 1, 66],
  ["training-3", "acme", "BUILDING", 16, 0, 0.02],
  ["eval-2", "quanta-bio", "REIMAGING", 12, 0, 20],
  ["nightly", "northlab", "REIMAGING", 8, 0, 12],
  ["gen-2", "quanta-bio", "RELEASING", 6, 0, 90],
  ["pilot", "acme", "RELEASED", 8, 0, 200],
];
const EDGES = {
  BUILDING: "started",
  VALIDATING: "built",
  READY: "handedover",
  DEGRADED: "degraded",
  REIMAGING: "reimaged",
  RELEASING: "released",
  RELEASED: "freed",
};
const WAYS = {
  READY: ["RESERVED", "BUILDING", "VALIDATING", "READY"],
  BUILDING: ["RESERVED", "BUILDING"],
};
const SECONDS = {
  RESERVED: 1.4,
  BUILDING: 2_140,
  VALIDATING: 412,
  READY: 12 * 86_400,
  DEGRADED: 5_400,
  RELEASING: 3_120,
};

export class Clusters extends Placement {
  constructor(world) {
    super(world);
    this.all = new Map();
    let at = 10;
    for (const [name, customer, state, nodes, spares, days] of world.nodes.size < 200 ? [] : MADE) {
      const names = [...world.nodes.keys()].slice(at, at + nodes + spares);
      at += nodes + spares + 3;
      this.add(
        name,
        {
          customer,
          sku: world.nodes.get(names[0]).spec.sku,
          nodes,
          spares,
          bandwidth: "non-blocking",
          deployment: {
            image: versionOf("ubuntu-hpc"),
            sshAuthorizedKeys: ["ssh-ed25519 AAAA cleo"],
            hasUserData: true,
          },
        },
        state,
        names,
        Date.now() - days * DAY,
      );
    }
    this.embellish();
  }

  add(name, spec, state, names, created) {
    const way = WAYS[state] ?? [...WAYS.READY, ...(state === "RELEASED" ? ["RELEASING"] : []), state];
    let time = created;
    const history = [];
    for (let index = 1; index < way.length; index += 1) {
      time += SECONDS[way[index - 1]] * 1_000;
      history.unshift({
        edge: EDGES[way[index]],
        fromState: `CLUSTER_STATE_${way[index - 1]}`,
        toState: `CLUSTER_STATE_${way[index]}`,
        time: iso(time),
        timeInFormerState: `${SECONDS[way[index - 1]]}s`,
      });
    }
    const cluster = {
      name: `clusters/${name}`,
      spec,
      status: {
        state: `CLUSTER_STATE_${state}`,
        stateSince: iso(Math.min(time, Date.now() - 40_000)),
        reservedWatts: names.length * 10_200,
        history,
        replaced: [],
      },
      metadata: { resourceVersion: "3", createTime: iso(created), labels: { team: "ml" } },
    };
    const isGone = state === "RELEASED";
    cluster.status.members = isGone
      ? []
      : names.map((node, index) => this.member(node, index, cluster, index >= spec.nodes));
    cluster.status.partition = isGone
      ? undefined
      : {
          key: `0x00${(this.all.size + 18).toString(16)}`,
          ports: names.length * 8,
          provenTime: ["READY", "DEGRADED", "REIMAGING"].includes(state) ? iso(Date.now() - 94_000) : undefined,
          progress: state === "BUILDING" ? "128 ports are to be read back" : "",
        };
    cluster.status.network = ["READY", "DEGRADED", "REIMAGING"].includes(state)
      ? `${names.length * 8} pairs tested, the slowest 389.4 Gbit/s, 97 % of the median`
      : "";
    this.all.set(cluster.name, cluster);
    return cluster;
  }

  member(name, index, cluster, spare) {
    const state = cluster.status.state.replace("CLUSTER_STATE_", "");
    const node = this.world.nodes.get(name);
    const building = ["IMAGING", "IMAGING", "VALIDATING", "ACTIVE"][index % 4];
    const nodeState =
      state === "BUILDING"
        ? building
        : state === "RELEASING"
          ? index % 3 === 0
            ? "AVAILABLE"
            : "RECLAIMING"
          : "ACTIVE";
    this.world.pinned.add(name);
    this.world.enter(node, nodeState, Date.now() - 4e5);
    if (node.status.claim) {
      node.status.claim.customer = cluster.spec.customer;
      node.status.claim.imageVersion = versionOf("ubuntu-hpc");
    }
    const standing =
      state === "BUILDING"
        ? nodeState === "ACTIVE"
          ? "checked"
          : "coming"
        : state === "RELEASING"
          ? nodeState === "AVAILABLE"
            ? "freed"
            : "leaving"
          : "handed-over";
    return { node: name, spare, state: `NODE_STATE_${nodeState}`, standing, address: node.status.address };
  }

  /** The details that make each of them different. */
  embellish() {
    const status = (name) => this.all.get(`clusters/${name}`)?.status ?? { members: [{}, {}, {}, {}] };
    this.all.get("clusters/alpha") && (this.all.get("clusters/alpha").spec.leaseEnd = iso(Date.now() + 5.3 * DAY));
    const degraded = status("borealis-7");
    Object.assign(degraded.members[3], {
      standing: "lost",
      state: "NODE_STATE_FAILED",
      reason: "check gpu-count: 7 of 8",
    });
    Object.assign(degraded.members[9] ?? {}, { reason: "HCA mlx5_5: the link to leaf-su3-r5 is down" });
    Object.assign(degraded, {
      reason: "a node is lost, and a link is down",
      waitingKind: "replacement",
      waitingFor: "a replacement for node gpu-049: unit su02 has no free node with all rails",
      replaced: [
        {
          node: "nodes/gpu-101",
          by: degraded.members[7]?.node,
          time: iso(Date.now() - 9 * DAY),
          reason: "requested: fan 3 fails",
        },
      ],
    });
    Object.assign(status("training-3"), {
      waitingKind: "nodes",
      waitingFor: "12 of 16 nodes to be imaged and checked",
    });
    const rollout = { maxUnavailable: 2, maxFailures: 1, anyLeaf: false };
    status("eval-2")
      .members.slice(6, 8)
      .forEach((member) => Object.assign(member, { standing: "coming", state: "NODE_STATE_IMAGING" }));
    Object.assign(status("eval-2"), {
      rollout: { rollout, done: 6, of: 12, failed: 0 },
      waitingKind: "reimage",
      waitingFor: "the new image on its nodes: 6 of 12 are done",
    });
    status("nightly")
      .members.slice(2, 4)
      .forEach((member) =>
        Object.assign(member, {
          standing: "lost",
          state: "NODE_STATE_FAILED",
          reason: "the installed system did not answer in 20 minutes",
        }),
      );
    Object.assign(status("nightly"), {
      rollout: {
        rollout: { ...rollout, maxFailures: 1 },
        done: 2,
        of: 8,
        failed: 2,
        stopped: "2 nodes failed, 1 was allowed; the last is gpu-105",
      },
      waitingKind: "reimage-stopped",
      waitingFor: "an operator to decide how its reimage continues: 2 nodes failed",
    });
    Object.assign(status("gen-2"), { waitingKind: "erase", waitingFor: "4 nodes to be erased" });
  }

  find(name) {
    const cluster = this.all.get(name);
    if (cluster === undefined || !this.isSeen(cluster)) {
      throw new Refusal("not_found", `cluster ${name?.slice(9)} does not exist`);
    }
    cluster.status.readyNodes = cluster.status.members.filter(({ standing }) => standing === "handed-over").length;
    return cluster;
  }

  isSeen({ spec }) {
    return !this.world.role.startsWith("customer") || spec.customer === "acme";
  }

  list() {
    return [...this.all.values()]
      .filter((cluster) => this.isSeen(cluster))
      .map((cluster) => {
        const { members, history, replaced, rollout, ...status } = this.find(cluster.name).status;
        return { ...cluster, status };
      });
  }

  operation(kind, cluster, minutes = 0) {
    const operation = {
      name: `operations/${crypto.randomUUID()}`,
      kind,
      target: cluster.name,
      requestedBy: "ann",
      createTime: iso(Date.now() - minutes * 6e4),
      progress: { step: "12 of 16 nodes checked", percent: 3 },
      metadata: { resourceVersion: "1" },
    };
    this.world.operations.unshift(operation);
    this.world.tell("requested", cluster.name, `${kind} of ${cluster.name.slice(9)} was requested`, { member: "ann" });
    return operation;
  }

  enter(cluster, state, edge) {
    const from = cluster.status.state;
    const spent = (Date.now() - Date.parse(cluster.status.stateSince)) / 1_000;
    cluster.status.history.unshift({
      edge,
      fromState: from,
      toState: `CLUSTER_STATE_${state}`,
      time: iso(Date.now()),
      timeInFormerState: `${spent.toFixed(3)}s`,
    });
    Object.assign(cluster.status, { state: `CLUSTER_STATE_${state}`, stateSince: iso(Date.now()) });
    this.world.tell(
      `cluster.${edge}`,
      cluster.name,
      `${cluster.name.slice(9)}: ${from.replace("CLUSTER_STATE_", "").toLowerCase()} -> ${state.toLowerCase()}`,
    );
  }

  create({ clusterId, spec }) {
    if (this.all.has(`clusters/${clusterId}`)) {
      throw new Refusal("already_exists", `cluster ${clusterId} exists already`);
    }
    if (!spec.deployment?.image) {
      throw new Refusal("invalid_argument", "the request has a fault", "", [
        { field: "spec.deployment.image", description: "is required" },
      ]);
    }
    const plan = this.plan(spec);
    if (!plan.fits) {
      throw new Refusal("failed_precondition", plan.refusal);
    }
    const names = [...plan.nodes, ...plan.spares].map((id) => `nodes/${id}`);
    const cluster = this.add(clusterId, spec, "BUILDING", names, Date.now() - 2_000);
    Object.assign(cluster.status, {
      waitingKind: "nodes",
      waitingFor: `${names.length} of ${names.length} nodes to be imaged and checked`,
      stateSince: iso(Date.now()),
    });
    return this.operation("create-cluster", cluster);
  }
}

export function clusterCalls(clusters) {
  const begin = (kind, state, edge) => (request) => {
    const cluster = clusters.find(request.name);
    if (state) {
      clusters.enter(cluster, state, edge);
    }
    return clusters.operation(kind, cluster);
  };
  return {
    "ClusterService/GetCluster": ({ name }) => clusters.find(name),
    "ClusterService/PlanCluster": ({ spec }) => clusters.plan(spec),
    "ClusterService/CreateCluster": (request) => clusters.create(request),
    "ClusterService/PlanClusterResize": (request) => clusters.planResize(request),
    "ClusterService/ResizeCluster": begin("resize-cluster", "RESIZING", "resized"),
    "ClusterService/ReimageCluster": begin("reimage-cluster", "REIMAGING", "reimaged"),
    "ClusterService/ResumeClusterReimage": begin("reimage-cluster"),
    "ClusterService/RollBackCluster": begin("roll-back-cluster"),
    "ClusterService/RetryCluster": begin("retry-cluster", "BUILDING", "retried"),
    "ClusterService/ReplaceClusterNode": begin("replace-node"),
    "ClusterService/ReleaseCluster": begin("release-cluster", "RELEASING", "released"),
    "ClusterService/SetClusterLease": ({ name, leaseEnd }) => {
      const cluster = clusters.find(name);
      cluster.spec.leaseEnd = leaseEnd;
      clusters.world.tell("cluster.lease", name, `ann set the lease of ${name.slice(9)}`);
      return cluster;
    },
    "ClusterService/DeleteCluster": ({ name }) => {
      clusters.all.delete(clusters.find(name).name);
      return {};
    },
    "ClusterService/GetHandoverPack": ({ name }) => clusters.pack(clusters.find(name)),
    "ClusterService/GetCapacity": ({ customer }) => {
      const skus = [...new Set([...clusters.world.nodes.values()].map(({ spec }) => spec.sku))].sort();
      const prices = { "dgx-h100": "0.0072", "hgx-h200": "0.0098" };
      const of = (sku) => clusters.free(sku).length;
      return {
        customer,
        time: iso(Date.now()),
        skus: skus.map((sku) => ({
          sku,
          freeNodes: of(sku),
          bareMetal: true,
          pricePerSecond: prices[sku] ?? "",
          currency: prices[sku] ? "USD" : "",
          fabrics: [
            { bandwidth: "non-blocking", largestClusterNodes: Math.floor(of(sku) * 0.8) },
            { bandwidth: "best-effort", largestClusterNodes: of(sku) },
          ],
        })),
      };
    },
  };
}
