// The calls of the made-up world about racks, power and fabric.
import { iso } from "./dev-world.mjs";
import { Hall } from "./dev-hall.mjs";
import { hallClusters } from "./dev-hall-clusters.mjs";

const KINDS = { TOPOLOGY_KIND_RACKS: "racks", TOPOLOGY_KIND_SWITCHES: "switches", TOPOLOGY_KIND_BUNDLES: "bundles" };

function paged(all, { pageSize, pageToken }, key) {
  const start = Number(pageToken || 0);
  const end = start + Math.min(1_000, pageSize || 50);
  return { [key]: all.slice(start, end), nextPageToken: end < all.length ? String(end) : undefined, total: all.length };
}

const byName = (a, b) => (a.name < b.name ? -1 : 1);

class Answers {
  constructor(world) {
    this.world = world;
    this.hall = new Hall(world);
    this.isLarge = world.nodes.size >= 50;
    this.faults = this.isLarge ? this.makeFaults() : [];
  }

  label(a, b, index) {
    const number = [...`${a} ${b}`].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 89_999, 7) + index;
    return `c${String(number).padStart(5, "0")}`;
  }

  bundles(of) {
    const { cables } = this.hall;
    const row = (a, [b, number]) => {
      const [first, second] = a < b ? [a, b] : [b, a];
      const labels = Array.from({ length: number }, (_, index) => this.label(first, second, index));
      const faulty = labels.filter((label) => this.faults.some((fault) => fault.cables.includes(label))).length;
      return { a, b, cables: number, faultyCables: faulty || undefined, labels: of ? labels : undefined };
    };
    if (of) {
      return (cables.get(of) ?? []).map((end) => row(of, end)).sort((a, b) => (a.b < b.b ? -1 : 1));
    }
    return [...cables].flatMap(([a, ends]) => ends.filter(([b]) => !b.startsWith("nodes/") && a < b).map((end) => row(a, end)));
  }

  topology({ kind, parent, ...request }) {
    const { racks, switches, cables } = this.hall;
    const key = KINDS[kind];
    let rows = [];
    if (key === "racks") {
      rows = racks.filter(({ room }) => !parent || room === parent).sort(byName);
    } else if (key === "switches") {
      const size = (name, isDown) => cables.get(name).reduce((sum, [end, number]) => sum + (end.startsWith("nodes/") === isDown ? number : 0), 0);
      rows = [...switches.values()].filter(({ fabric }) => !parent || fabric === parent).sort(byName).map((known) => ({ ...known, downCables: size(known.name, true), upCables: size(known.name, false), faultyCables: this.faultyOf(known.name) || undefined }));
    } else {
      rows = this.bundles(parent);
    }
    return { ...paged(rows, request, key), resourceVersion: "7" };
  }

  faultyOf(name) {
    return this.faults.filter(({ ends }) => ends.some(({ a, b }) => a.startsWith(`${name}/`) || b.startsWith(`${name}/`))).length;
  }

  /** A fault of the cable between a switch and its end number `at`. */
  fault(of, at, fault, words, minutes, clusters = []) {
    const [a, [b]] = [of, this.hall.cables.get(of)[at]];
    const [first, second] = a < b ? [a, b] : [b, a];
    const cable = this.label(first, second, 0);
    const node = b.startsWith("nodes/");
    const end = node ? `${b.slice(6)}/mlx5_${this.hall.switches.get(of).rail ?? 0}` : `${b}/${1 + (at % 32)}`;
    return { id: `cable/${fault}/${cable}`, kind: "cable", fault, cables: [cable], ends: [{ a: `${a}/${at + 1}`, b: end }], nodes: node ? [b] : [], clusters, countingClusters: clusters.slice(0, 1), text: `cable ${cable} from ${a}/${at + 1} to ${end} ${words}`, since: iso(Date.now() - minutes * 6e4) };
  }

  makeFaults() {
    const leaves = [...this.hall.switches.values()].filter(({ level, fabric }) => level === "leaf" && fabric !== "storage");
    const spine = [...this.hall.switches.values()].find(({ level, fabric }) => level === "spine" && fabric !== "storage");
    const leaf = (share) => leaves[Math.floor(leaves.length * share)].name;
    const up = (name) => this.hall.cables.get(name).findIndex(([end]) => !end.startsWith("nodes/"));
    return [
      this.fault(leaf(0.05), up(leaf(0.05)) + 2, "missing", "has no link", 94, ["clusters/kepler"]),
      this.fault(leaf(0.31), 9, "wrong-width", "runs at 1x instead of 4x", 150, ["clusters/kepler"]),
      this.fault(leaf(0.56), up(leaf(0.56)) + 5, "missing", "has no link", 31),
      this.fault(leaf(0.83), 17, "wrong-speed", "runs at HDR instead of NDR", 2_200),
      this.fault(spine.name, this.hall.cables.get(spine.name).length - 1, "missing", "has no link", 12),
    ];
  }

  fabric() {
    if (!this.isLarge) {
      return {};
    }
    const breach = { id: "foreign-key/1", kind: "foreign-key", text: "1 port has a partition key that it must not have", ports: "1", firstPorts: ["0xa088c20300f4b21a"], clusters: ["clusters/kepler"], goodTime: iso(Date.now() - 9.03e7), since: iso(Date.now() - 9e7), seenTime: iso(Date.now() - 8.98e7), endTime: iso(Date.now() - 8.98e7) };
    return { checkTime: iso(Date.now() - 5e4), isolationCheckTime: iso(Date.now() - 3e4), faults: this.faults, breaches: [breach] };
  }

  alarms() {
    if (!this.isLarge) {
      return { coverage: [{ kind: "node", known: this.world.nodes.size, read: 0 }] };
    }
    const { racks, domains } = this.hall;
    const nodesOf = (rack) => rack.machines.map(({ name }) => name).filter((name) => name.startsWith("nodes/"));
    const alarm = (kind, subject, severity, message, advice, nodes, minutes, more = {}) => ({ name: `alarms/${kind} ${subject}`, kind, subject, severity, message, advice, nodeCount: nodes.length, nodes: nodes.slice(0, 100), openTime: iso(Date.now() - minutes * 6e4), seenTime: iso(Date.now()), ...more });
    const held = { blocks: true, cordons: true };
    const liquid = racks.filter(({ coolingLoop }) => coolingLoop).slice(0, 3);
    const hot = nodesOf(racks[5])[1];
    const alarms = [
      alarm("leak", "cdu/cdu-2", "critical", "the detector at manifold B reports Critical", "send a technician; drain the nodes that water can reach", liquid.flatMap(nodesOf), 7, held),
      alarm("temperature", hot, "critical", "sensor Inlet is at 47 °C, its upper critical limit is 45 °C", "check fans, filters and doors", [hot], 22, { ...held, measured: 47, limit: 45, unit: "°C" }),
      alarm("feed-lost", `rack-pdu/${racks[9].pdus[0].name}`, "critical", "every main has less than a fifth of its voltage", "find the cause before a breaker is closed", nodesOf(racks[9]), 41, held),
      alarm("over-reservation", `rack-pdu/${racks[2].pdus[0].name}`, "warning", "the load is 12 % above the reservation", "correct the SKU's maximum or set power caps", nodesOf(racks[2]), 190, { measured: 12_700, limit: 11_340, unit: "W" }),
    ].sort(byName);
    const pdus = [...domains.values()].filter(({ kind }) => kind === "rack-pdu" || kind === "power-shelf");
    const unread = pdus.filter(({ racks: [rack] }) => this.hall.isUnread(rack)).length;
    return { alarms, coverage: [{ kind: "node", known: this.world.nodes.size, read: this.world.nodes.size - 3 }, { kind: "pdu", known: pdus.length, read: pdus.length - unread }, { kind: "cooling", known: 6, read: 6 }] };
  }

  report({ level, ...request }) {
    const rows = [...this.hall.domains.values()].filter(({ kind }) => kind === (level || "circuit")).map((domain) => this.hall.figures(domain));
    rows.sort((a, b) => a.headroomWatts / a.deratedWatts - b.headroomWatts / b.deratedWatts);
    return paged(rows, request, "rows");
  }

  steps(nodes) {
    const domains = new Map();
    for (const node of nodes) {
      const rack = this.hall.rackOf.get(node);
      for (const { name } of rack?.pdus ?? []) {
        for (let at = this.hall.domains.get(name); at; at = this.hall.domains.get(at.parent)) {
          const known = domains.get(at) ?? { own: 0, nodes: 0 };
          domains.set(at, { own: known.own + this.hall.greatest(node) / rack.pdus.length, nodes: known.nodes + 1 });
        }
      }
    }
    const order = ["utility", "panel", "feed", "circuit", "rack-pdu", "power-shelf"];
    const step = ([domain, { own, nodes: supplied }]) => {
      const figures = this.hall.figures(domain);
      return { kind: domain.kind, name: domain.name, parent: domain.parent, feed: domain.feed, ratedWatts: domain.rated, deratedWatts: domain.derated, reservedWatts: figures.reservedWatts, ownWatts: own, measuredWatts: figures.measuredWatts, nodes: supplied, startsAtOnce: domain.kind === "circuit" ? 2 : 0 };
    };
    return [...domains].map(step).sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || byName(a, b));
  }

  psus(name) {
    const pdus = this.hall.rackOf.get(name)?.pdus ?? [];
    const each = this.hall.greatest(name) / 6;
    return Array.from({ length: 6 }, (_, index) => ({ psu: index + 1, outlet: `${pdus[index % pdus.length].name}/${1 + index}`, watts: each, outletWatts: 3_840, feed: pdus[index % pdus.length].feed }));
  }

  explain({ name, ...request }, nodes, refusal) {
    if (nodes.length === 0) {
      throw refusal;
    }
    const steps = this.steps(nodes);
    const isNode = nodes.length === 1 && name.startsWith("nodes/");
    const psus = isNode ? this.psus(nodes[0]) : [];
    const feeds = [...new Set(psus.map(({ feed }) => feed))];
    const loss = (feed) => {
      const live = psus.filter((psu) => psu.feed !== feed).length;
      return { feed, live, liveWatts: live * 3_300, survives: live * 3_300 >= this.hall.greatest(nodes[0]) };
    };
    const measured = nodes.map((node) => this.hall.watts(node));
    const touched = new Set(nodes);
    const alarms = (this.alarms().alarms ?? []).filter((alarm) => alarm.nodes.some((node) => touched.has(node)));
    return { name, nodes: nodes.slice(0, 1_000), nodeCount: nodes.length, reservedWatts: nodes.reduce((sum, node) => sum + this.hall.greatest(node), 0), measuredWatts: measured.includes(undefined) ? undefined : measured.reduce((sum, watts) => sum + watts, 0), ...paged(steps, { ...request, pageSize: request.pageSize || 200 }, "steps"), psus: psus.map(({ feed, ...psu }) => psu), losses: feeds.sort().map(loss), alarms };
  }
}

/** The answers about the hall; `before`: the other calls, and `refuse` makes an error of the API. */
export function hallCalls(world, before, refuse) {
  const answers = new Answers(world);
  const clusters = hallClusters(world);
  const cluster = (name) => clusters.find((known) => known.name === name);
  const nodesOf = (name) => {
    if (name.startsWith("clusters/")) {
      const { status } = cluster(name) ?? before["ClusterService/GetCluster"]({ name });
      return (status.members ?? []).map(({ node }) => node);
    }
    const customer = name.replace("customers/", "");
    return [...world.nodes.values()].filter((node) => node.name === name || (name.startsWith("customers/") && node.status.claim?.customer === customer)).map((node) => node.name);
  };
  const noSite = () => {
    throw refuse("failed_precondition", "there is no site", "`rackwright site apply site/` applies a site; `rackwright site generate` writes a first site");
  };
  const withSite = (work) => (world.hasNoSite ? noSite : work);
  return {
    "SiteService/GetTopology": withSite((request) => answers.topology(request)),
    "SiteService/ListFabricFaults": () => answers.fabric(),
    "PowerService/ListAlarms": () => answers.alarms(),
    "PowerService/GetPowerReport": withSite((request) => answers.report(request)),
    "PowerService/ExplainPower": withSite((request) => answers.explain(request, nodesOf(request.name), refuse("not_found", `${request.name.replace("s/", " ")} does not exist`))),
    "ClusterService/ListClusters": (request) => {
      const listed = before["ClusterService/ListClusters"](request);
      const mine = request.filter || request.pageToken || world.role.startsWith("customer") ? [] : clusters.map(({ status: { members, ...status }, ...rest }) => ({ ...rest, status }));
      return { ...listed, clusters: [...mine, ...listed.clusters] };
    },
    "ClusterService/GetCluster": (request) => cluster(request.name) ?? before["ClusterService/GetCluster"](request),
  };
}
