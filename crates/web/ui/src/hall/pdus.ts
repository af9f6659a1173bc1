import type { PowerHeadroom, TopologyRack } from "../api";
import { pages } from "../client";
import { useWork, type Called } from "../use-call";

const RELOAD_MS = 60_000;
const LEVELS = ["rack-pdu", "power-shelf"];

export type Pdus = ReadonlyMap<string, PowerHeadroom>;

/** The figures of every rack PDU and power shelf, by name. */
export function usePdus(isWanted: boolean): Called<Pdus> {
  return useWork(
    async (signal) => {
      const read = (level: string) => pages("PowerService/GetPowerReport", { level, pageSize: 1_000 }, ({ rows }) => rows, signal);
      const rows = (await Promise.all(LEVELS.map(read))).flat();
      return new Map(rows.map((row) => [row.name ?? "", row]));
    },
    "power of racks",
    { isWanted, everyMs: RELOAD_MS },
  );
}

export interface RackPower {
  /** Watts; null: a PDU of the rack has no reading, or there is none. */
  measured: number | null;
  reserved: number | null;
}

export function rackPower({ pdus }: TopologyRack, known: Pdus | undefined): RackPower {
  const rows = (pdus ?? []).map(({ name }) => known?.get(name ?? ""));
  const sum = (of: (row: PowerHeadroom) => number | undefined) =>
    rows.reduce<number | null>((total, row) => {
      const watts = row && of(row);
      return total === null || watts === undefined ? null : total + watts;
    }, 0);
  return rows.length === 0 ? { measured: null, reserved: null } : { measured: sum((row) => row.measuredWatts), reserved: sum((row) => row.reservedWatts ?? 0) };
}

/** `12.8 kW`, as the CLI; `1.23 MW` from 1 MW. */
export function kw(watts: number | null | undefined): string {
  if (watts === null || watts === undefined) {
    return "unknown";
  }
  return Math.abs(watts) >= 1e6 ? `${(watts / 1e6).toFixed(2)} MW` : `${(watts / 1_000).toFixed(1)} kW`;
}
