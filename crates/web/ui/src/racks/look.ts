import type { Alarm } from "../api";
import type { Row } from "../fleet/row";
import type { ClusterOf } from "../hall/clusters";
import { heat, type Colours, type Token } from "../hall/colours";
import { kw, rackPower, type Pdus, type RackPower } from "../hall/pdus";
import { short } from "../names";
import type { Machine, Rack } from "./model";

export type By = "state" | "watts" | "temperature" | "customer" | "cluster";

export const BY: [By, string][] = [
  ["state", "state"],
  ["watts", "watts"],
  ["temperature", "temperature"],
  ["customer", "customer"],
  ["cluster", "cluster"],
];

/** What is known of the machines. */
export interface Known {
  by: By;
  rows: ReadonlyMap<string, Row>;
  pdus: Pdus | undefined;
  clusterOf: ClusterOf | undefined;
  categories: Map<string, number>;
  alarms: Alarms;
  /** Watts of the rack with the most. */
  most: number;
}

export interface Alarms {
  /** The gravest alarm of each node. */
  ofNode: Map<string, Alarm>;
  /** Of PDUs, by their names. */
  ofPdu: Map<string, Alarm>;
  /** Temperatures that alarms tell, by node. */
  temperatures: Map<string, Alarm>;
}

const gravity = (alarm: Alarm | undefined) => (alarm === undefined ? 0 : alarm.severity === "critical" ? 2 : 1);

export function alarmsOf(alarms: Alarm[]): Alarms {
  const known: Alarms = { ofNode: new Map(), ofPdu: new Map(), temperatures: new Map() };
  for (const alarm of alarms) {
    const [, name = ""] = (alarm.subject ?? "").split("/");
    if (/^(rack-pdu|power-shelf)\//.test(alarm.subject ?? "")) {
      known.ofPdu.set(name, alarm);
    }
    for (const node of alarm.nodes ?? []) {
      const id = short("nodes", node);
      if (gravity(alarm) > gravity(known.ofNode.get(id))) {
        known.ofNode.set(id, alarm);
      }
    }
    if (alarm.kind === "temperature" && alarm.measured !== undefined) {
      known.temperatures.set(name, alarm);
    }
  }
  return known;
}

/** The name by which a node is coloured; empty: none. */
export function categoryOf({ by, rows, clusterOf }: Known, node: string): string {
  return by === "customer" ? (rows.get(node)?.customer ?? "") : (clusterOf?.get(node) ?? "");
}

/** Watts of a rack, and whether they are measured. */
export function shownWatts({ measured, reserved }: RackPower): { watts: number | null; isMeasured: boolean } {
  return measured === null ? { watts: reserved, isMeasured: false } : { watts: measured, isMeasured: true };
}

/** The watts of the rack with the most, rounded up. */
export function mostWatts(racks: Rack[], pdus: Pdus | undefined): number {
  const most = racks.reduce((best, rack) => Math.max(best, shownWatts(rackPower(rack.of, pdus)).watts ?? 0), 0);
  return Math.max(5_000, Math.ceil(most / 5_000) * 5_000);
}

export interface Look {
  /** Empty: nothing is known, so only the outline is drawn. */
  fill: string;
  isHatched?: boolean;
}

const LEVELS: Record<string, Token> = { leaf: "switch-leaf", spine: "switch-spine", core: "switch-core" };

/** How a machine looks. */
export function lookOf(known: Known, colours: Colours, rack: Rack, machine: Machine): Look {
  if (known.by === "watts") {
    const { watts, isMeasured } = shownWatts(rackPower(rack.of, known.pdus));
    return watts === null ? { fill: "" } : { fill: heat(colours, watts / known.most), isHatched: !isMeasured };
  }
  if (!machine.isNode) {
    return { fill: colours.of[LEVELS[machine.kind] ?? "switch-leaf"] };
  }
  if (known.by === "state") {
    const row = known.rows.get(machine.name);
    return { fill: row === undefined ? "" : (colours.states.get(row.state) ?? "") };
  }
  if (known.by === "temperature") {
    return { fill: known.alarms.temperatures.has(machine.name) ? colours.of.bad : "" };
  }
  const category = known.categories.get(categoryOf(known, machine.name));
  return { fill: category === undefined ? colours.of["line-strong"] : (colours.categories[category] ?? "") };
}

/** The watts of a rack, in words. */
export function rackWatts(known: Known, rack: Rack): string {
  const { watts, isMeasured } = shownWatts(rackPower(rack.of, known.pdus));
  return watts === null ? "watts unknown" : `${kw(watts)} ${isMeasured ? "measured" : "reserved"}`;
}

/** What is known of a machine, in words. */
export function wordOf(known: Known, machine: Machine): string {
  if (!machine.isNode) {
    return machine.kind;
  }
  if (known.by === "state" || known.by === "watts") {
    return known.rows.get(machine.name)?.state ?? "not enrolled";
  }
  if (known.by === "temperature") {
    const alarm = known.alarms.temperatures.get(machine.name);
    return alarm === undefined ? "unknown" : `${alarm.measured} °C`;
  }
  return categoryOf(known, machine.name) || (known.by === "customer" ? "no customer" : "no cluster");
}
