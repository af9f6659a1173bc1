import type { FabricFault, TopologySwitch } from "../api";
import { short } from "../names";

/** Leaves that serve the same nodes, each leaf on its rail; or one leaf that belongs to no scalable unit. */
export interface Unit {
  key: string;
  title: string;
  leaves: TopologySwitch[];
  /** Number of nodes as far as it is known from the cables. */
  size: number;
}

export interface Pod {
  key: string;
  /** Empty: the fabric has no pods. */
  title: string;
  units: Unit[];
  spines: TopologySwitch[];
}

export interface Fabric {
  pods: Pod[];
  /** Cores, and spines without a pod in a fabric with pods. */
  tops: TopologySwitch[];
}

const natural = new Intl.Collator("en", { numeric: true });
const byName = (a: TopologySwitch, b: TopologySwitch) => natural.compare(a.name ?? "", b.name ?? "");

export function fabricsOf(switches: TopologySwitch[]): string[] {
  return [...new Set(switches.map(({ fabric }) => fabric ?? ""))].sort(natural.compare);
}

function grouped<T>(items: T[], keyOf: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) {
      groups.set(key, [item]);
    } else {
      group.push(item);
    }
  }
  return [...groups].sort(([a], [b]) => natural.compare(a, b));
}

function unitsOf(leaves: TopologySwitch[]): Unit[] {
  return grouped(leaves, (leaf) => (leaf.scalableUnit ? `su${leaf.scalableUnit}` : `leaf ${leaf.name}`)).map(([key, some]) => {
    const rail = (leaf: TopologySwitch) => leaf.rail ?? -1;
    return {
      key,
      title: some[0]?.scalableUnit ? `su ${some[0].scalableUnit}` : (some[0]?.name ?? ""),
      leaves: some.sort((a, b) => rail(a) - rail(b) || byName(a, b)),
      size: some.reduce((most, leaf) => Math.max(most, leaf.downCables ?? 0), 0),
    };
  });
}

/** The switches of one fabric in their pods and units. */
export function fabricOf(switches: TopologySwitch[], name: string): Fabric {
  const all = switches.filter(({ fabric }) => (fabric ?? "") === name);
  const leaves = all.filter(({ level }) => level === "leaf");
  const spines = all.filter(({ level }) => level === "spine");
  const hasPods = new Set(leaves.map(({ pod }) => pod ?? 0)).size > 1;
  const podOf = ({ pod }: TopologySwitch) => (hasPods ? String(pod ?? 0) : "");
  const pods = grouped(leaves, podOf).map(([key, some]): Pod => ({
    key,
    title: hasPods ? (key === "0" ? "no pod" : `pod ${key}`) : "",
    units: unitsOf(some),
    spines: spines.filter((spine) => podOf(spine) === key).sort(byName),
  }));
  const placed = new Set(pods.flatMap((pod) => pod.spines));
  return { pods, tops: all.filter((some) => some.level !== "leaf" && !placed.has(some)).sort(byName) };
}

export interface End {
  /** Name of a switch or node. */
  name: string;
  port: string;
}

/** "leaf-01/7", "gpu-014/mlx5_3". */
export function endOf(text: string | undefined): End {
  const whole = short("nodes", text);
  const at = whole.lastIndexOf("/");
  return at < 0 ? { name: whole, port: "" } : { name: whole.slice(0, at), port: whole.slice(at + 1) };
}

/** The devices at the ends of a fault's cables. */
export function devicesOf({ ends = [] }: FabricFault): string[] {
  return ends.flatMap(({ a, b }) => [endOf(a).name, endOf(b).name]);
}
