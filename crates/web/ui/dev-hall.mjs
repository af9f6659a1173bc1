// The hall of the made-up world: racks with their machines, the power tree, and rail-optimised fat-trees.
import { random } from "./dev-world.mjs";

/** Nodes of a rack, their height in units, feed letters, greatest watts, and whether power shelves feed the rack. */
const KINDS = {
  "dgx-h100": { inRack: 4, height: 8, feeds: "AB", watts: 10_200 },
  "hgx-h200": { inRack: 4, height: 8, feeds: "ABC", watts: 9_600 },
  "gb200-nvl": { inRack: 8, height: 2, feeds: "AB", watts: 5_400, isLiquid: true },
  "storage-2u": { inRack: 8, height: 2, feeds: "AB", watts: 900 },
};
const NETWORK = { feeds: "AB", watts: 0 };
const UNIT = 32;
const UNITS_IN_POD = 4;
const RACKS_IN_ROOM = 480;
const RACKS_IN_ROW = 24;
const two = (value, digits = 2) => String(value).padStart(digits, "0");

export class Hall {
  constructor(world) {
    this.world = world;
    this.random = random(world.nodes.size + 5);
    this.racks = [];
    this.rackOf = new Map();
    this.switches = new Map();
    /** Bundles by switch: pairs of the other end and the number of cables. */
    this.cables = new Map();
    this.domains = new Map();
    this.drawn = new Map();
    this.placeNodes();
    this.wire();
    this.feed();
  }

  newRack(kind) {
    const index = this.racks.length;
    const isSmall = this.world.nodes.size < 50;
    const room = isSmall ? "lab" : `hall-${1 + Math.floor(index / RACKS_IN_ROOM)}`;
    const row = Math.floor((index % RACKS_IN_ROOM) / RACKS_IN_ROW);
    const place = `${String.fromCharCode(97 + row)}${two(1 + (index % RACKS_IN_ROW))}`;
    const name = isSmall ? `r${index + 1}` : `${room.slice(5)}${place}`;
    const pdu = (letter) => (kind.isLiquid ? `shelf-${letter.toLowerCase()}-${name}` : `pdu-${letter.toLowerCase()}-${name}`);
    const rack = { name, room, units: 42, coolingLoop: kind.isLiquid ? `loop-${room}-${place[0]}` : "", machines: [], pdus: [...kind.feeds].map((feed) => ({ name: pdu(feed), feed })) };
    this.racks.push(rack);
    return rack;
  }

  placeNodes() {
    let rack;
    let before = "";
    for (const node of this.world.nodes.values()) {
      const kind = KINDS[node.spec.sku];
      const most = this.world.nodes.size < 50 ? 1 : kind.inRack;
      if (node.spec.sku !== before || rack.machines.length >= most) {
        rack = this.newRack(kind);
        before = node.spec.sku;
      }
      const at = rack.machines.length;
      const unit = 3 + at * (kind.height + (kind.height > 2 ? 1 : 2)) + (at > 1 && kind.height > 2 ? 1 : 0);
      rack.machines.push({ name: node.name, kind: node.spec.sku, unit, heightUnits: kind.height });
      this.rackOf.set(node.name, rack);
      Object.assign(node.metadata.labels, { rack: rack.name, unit: String(unit) });
    }
  }

  /** Fabrics of the site: one without a name, two, or two halls and storage. */
  wire() {
    const all = [...this.world.nodes.values()];
    const compute = all.filter(({ spec }) => spec.sku !== "storage-2u").map(({ name }) => name);
    if (all.length < 50) {
      this.tree("", "", compute, 4);
      return;
    }
    const half = Math.ceil(compute.length / 2 / 128) * 128;
    const parts = compute.length > 4_000 ? [["hall-a", "a-", compute.slice(0, half)], ["hall-b", "b-", compute.slice(half)]] : [["compute", "", compute]];
    parts.forEach(([fabric, prefix, nodes]) => this.tree(fabric, prefix, nodes, 8));
    this.storage(all.map(({ name }) => name));
  }

  addSwitch(fields, rack) {
    if (rack.machines.length >= 36) {
      throw new Error("the rack is full");
    }
    this.switches.set(fields.name, { ports: 64, speed: "NDR", pod: 0, scalableUnit: 0, ...fields, rack: rack.name });
    this.cables.set(fields.name, []);
    rack.machines.push({ name: fields.name, kind: fields.level, unit: 3 + rack.machines.length, heightUnits: 1 });
    return fields.name;
  }

  join(a, b, cables) {
    this.cables.get(a).push([b, cables]);
    this.cables.get(b)?.push([a, cables]);
  }

  /** Racks for switches, a new one when the former is full. */
  filler() {
    let rack = null;
    return () => {
      if (rack === null || rack.machines.length >= 34) {
        rack = this.newRack(NETWORK);
      }
      return rack;
    };
  }

  tree(fabric, prefix, nodes, rails) {
    const units = Math.ceil(nodes.length / UNIT);
    const hasPods = units > 8;
    const pods = hasPods ? Math.ceil(units / UNITS_IN_POD) : 1;
    const next = this.filler();
    const spines = [];
    for (let pod = 1; pod <= pods; pod += 1) {
      const first = hasPods ? (pod - 1) * UNITS_IN_POD : 0;
      const last = hasPods ? Math.min(units, pod * UNITS_IN_POD) : units;
      const leaves = [];
      for (let unit = first; unit < last; unit += 1) {
        for (let rail = 0; rail < rails; rail += 1) {
          const name = `${prefix}leaf-su${two(unit + 1, units > 99 ? 3 : 2)}-r${rail}`;
          leaves.push(this.addSwitch({ name, fabric, level: "leaf", pod: hasPods ? pod : 0, scalableUnit: unit + 1, rail }, next()));
          nodes.slice(unit * UNIT, (unit + 1) * UNIT).forEach((node) => this.join(name, node, 1));
        }
      }
      const number = Math.min(32, Math.max(2, leaves.length / 2));
      for (let index = 1; index <= number; index += 1) {
        const name = hasPods ? `${prefix}spine-p${two(pod)}-${two(index)}` : `${prefix}spine-${two(index)}`;
        spines.push([this.addSwitch({ name, fabric, level: "spine", pod: hasPods ? pod : 0 }, next()), index]);
        leaves.forEach((leaf) => this.join(leaf, name, Math.max(1, Math.floor(32 / number))));
      }
    }
    if (hasPods) {
      this.cores(fabric, prefix, spines, next);
    }
  }

  cores(fabric, prefix, spines, next) {
    const number = Math.ceil(spines.length / 2);
    const groups = Math.min(number, Math.max(...spines.map(([, index]) => index)));
    const cores = Array.from({ length: number }, (_, index) => this.addSwitch({ name: `${prefix}core-${two(index + 1, 3)}`, fabric, level: "core" }, next()));
    for (const [spine, index] of spines) {
      const mine = cores.filter((_, at) => at % groups === (index - 1) % groups);
      mine.forEach((core) => this.join(spine, core, Math.max(1, Math.floor(32 / mine.length))));
    }
  }

  storage(nodes) {
    const next = this.filler();
    const leaves = [];
    for (let at = 0; at < nodes.length; at += 48) {
      const name = `stor-leaf-${two(leaves.length + 1, 3)}`;
      leaves.push(this.addSwitch({ name, fabric: "storage", level: "leaf", speed: "HDR" }, next()));
      nodes.slice(at, at + 48).forEach((node) => this.join(name, node, 1));
    }
    const number = Math.max(2, Math.ceil(leaves.length / 4));
    for (let index = 1; index <= number; index += 1) {
      const name = this.addSwitch({ name: `stor-spine-${two(index)}`, fabric: "storage", level: "spine", speed: "HDR" }, next());
      leaves.forEach((leaf) => this.join(leaf, name, Math.max(1, Math.floor(16 / number))));
    }
  }

  domain(kind, name, feed, parent, derated) {
    if (!this.domains.has(name)) {
      this.domains.set(name, { kind, name, feed, parent, rated: derated / 0.8, derated, racks: [] });
    }
    return this.domains.get(name);
  }

  /** The power tree: every rack has a circuit and a PDU for each of its feeds. */
  feed() {
    for (const rack of this.racks) {
      const [row] = /[a-z](?=\d+$)/.exec(rack.name) ?? ["r"];
      for (const { name, feed } of rack.pdus) {
        const letter = feed.toLowerCase();
        const utility = this.domain("utility", `utility-${letter}`, feed, "", 0);
        const panel = this.domain("panel", `panel-${letter}-${rack.room}`, feed, utility.name, 0);
        const busway = this.domain("feed", `busway-${letter}-${rack.room}-${row}`, feed, panel.name, 0);
        const derated = rack.coolingLoop ? 57_500 : 46_000;
        const circuit = this.domain("circuit", `circuit-${letter}-${rack.name}`, feed, busway.name, derated);
        const pdu = this.domain(rack.coolingLoop ? "power-shelf" : "rack-pdu", name, feed, circuit.name, derated);
        [utility, panel, busway, circuit, pdu].forEach((domain) => domain.racks.push(rack));
      }
    }
    for (const domain of this.domains.values()) {
      if (domain.derated === 0) {
        domain.derated = domain.racks.length * 46_000 * (domain.kind === "feed" ? 0.86 : 0.8);
        domain.rated = domain.derated / 0.8;
      }
    }
  }

  greatest(name) {
    return KINDS[this.world.nodes.get(name)?.spec.sku]?.watts ?? 0;
  }

  /** Watts of a node; undefined: its BMC reports none. */
  watts(name) {
    const node = this.world.nodes.get(name);
    if (this.world.nodes.size < 50 || node === undefined) {
      return undefined;
    }
    if (!this.drawn.has(name)) {
      this.drawn.set(name, this.random());
    }
    const share = node.status.power === "off" ? 0.01 : node.status.claim ? 0.5 + this.drawn.get(name) * 0.35 : 0.16 + this.drawn.get(name) * 0.05;
    return this.greatest(name) * share;
  }

  /** Figures of one vertex of the power tree. */
  figures(domain) {
    let [reserved, worst, measured] = [0, 0, 0];
    let isWhole = this.world.nodes.size >= 50;
    for (const rack of domain.racks) {
      const feeds = rack.pdus.length;
      const nodes = rack.machines.filter(({ name }) => name.startsWith("nodes/"));
      const other = (rack.machines.length - nodes.length) * 700;
      reserved += other / feeds;
      worst += other;
      measured += other / feeds;
      for (const { name } of nodes) {
        const most = this.world.nodes.get(name)?.status.claim ? this.greatest(name) : 0;
        reserved += most / feeds;
        worst += most / Math.max(1, feeds - 1);
        measured += (this.watts(name) ?? 0) / feeds;
      }
      isWhole &&= !this.isUnread(rack) || domain.kind === "utility";
    }
    const headroom = domain.derated - worst;
    const smallest = Math.min(...domain.racks.flatMap(({ machines }) => machines.map(({ name }) => this.greatest(name) || 1e9)));
    return { kind: domain.kind, name: domain.name, feed: domain.feed, deratedWatts: domain.derated, reservedWatts: reserved, worstWatts: worst, measuredWatts: isWhole ? measured : undefined, headroomWatts: headroom, strandedWatts: headroom > 0 && headroom < smallest ? headroom : headroom > 0 && domain.racks.length === 1 ? headroom % smallest : 0 };
  }

  /** PDUs of these racks answer no readings. */
  isUnread(rack) {
    return rack.name === "1c07" || rack.name === "4f07";
  }
}
