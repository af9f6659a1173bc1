import type { TopologyRack } from "../api";
import { short } from "../names";

export interface Machine {
  /** The name of the node or switch. */
  name: string;
  isNode: boolean;
  /** SKU or level of a switch. */
  kind: string;
  /** From 1; 0: unknown. */
  unit: number;
  height: number;
}

export interface Rack {
  name: string;
  room: string;
  units: number;
  loop: string;
  machines: Machine[];
  pdus: { name: string; feed: string }[];
  of: TopologyRack;
}

const natural = new Intl.Collator("en", { numeric: true });

/** Racks by room and name. */
export function racksOf(racks: TopologyRack[]): Rack[] {
  const made = racks.map((rack) => ({
    name: rack.name ?? "",
    room: rack.room ?? "",
    units: rack.units ?? 0,
    loop: rack.coolingLoop ?? "",
    machines: (rack.machines ?? []).map(({ name = "", kind = "", unit = 0, heightUnits = 1 }) => ({
      name: short("nodes", name),
      isNode: name.startsWith("nodes/"),
      kind,
      unit,
      height: Math.max(1, heightUnits),
    })),
    pdus: (rack.pdus ?? []).map(({ name = "", feed = "" }) => ({ name, feed })),
    of: rack,
  }));
  return made.sort((a, b) => natural.compare(a.room, b.room) || natural.compare(a.name, b.name));
}

export function roomsOf(racks: Rack[]): string[] {
  return [...new Set(racks.map(({ room }) => room))];
}

/** The racks of a room that have the text in their name, or in that of their cooling loop, a machine or a PDU. */
export function narrowed(racks: Rack[], room: string, text: string): Rack[] {
  const wanted = text.trim().toLowerCase();
  const has = (name: string) => name.toLowerCase().includes(wanted);
  return racks.filter(
    (rack) => (room === "" || rack.room === room) && (wanted === "" || has(rack.name) || has(rack.loop) || rack.machines.some(({ name }) => has(name)) || rack.pdus.some(({ name }) => has(name))),
  );
}

/** The nodes of the racks. */
export function nodesIn(racks: Rack[]): string[] {
  return racks.flatMap(({ machines }) => machines.filter(({ isNode }) => isNode).map(({ name }) => name));
}
