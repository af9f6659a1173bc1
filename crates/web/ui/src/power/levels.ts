import type { PowerHeadroom } from "../api";
import { pages } from "../client";
import { atOnce } from "../hall/at-once";
import { isOfSite } from "../session";
import { useWork, type Called } from "../use-call";

/** From the utility down, in the words of the site file. */
export const LEVELS = ["utility", "panel", "feed", "circuit", "rack-pdu", "power-shelf"] as const;

export type Level = (typeof LEVELS)[number];

const RELOAD_MS = 60_000;

/** Every level, those with the least headroom first in each. */
export type Report = ReadonlyMap<Level, PowerHeadroom[]>;

export function useReport(): Called<Report> {
  return useWork(
    async (signal) => {
      const read = (level: Level) => pages("PowerService/GetPowerReport", { level, pageSize: 1_000 }, ({ rows }) => rows, signal);
      const rows = await atOnce([...LEVELS], read);
      return new Map(LEVELS.map((level, index) => [level, rows[index] ?? []]));
    },
    "power report",
    { isWanted: isOfSite(), everyMs: RELOAD_MS },
  );
}

export interface Figures {
  permitted: number;
  reserved: number;
  worst: number;
  /** Null: a part is unknown. */
  measured: number | null;
  headroom: number;
  stranded: number;
}

export function figuresOf(row: PowerHeadroom): Figures {
  return {
    permitted: row.deratedWatts ?? 0,
    reserved: row.reservedWatts ?? 0,
    worst: row.worstWatts ?? 0,
    measured: row.measuredWatts ?? null,
    headroom: row.headroomWatts ?? 0,
    stranded: row.strandedWatts ?? 0,
  };
}

/** Vertices of one level and one feed letter together. */
export interface Sum {
  count: number;
  /** Vertices with a measurement. */
  read: number;
  figures: Figures;
  /** The vertex with the least headroom as a share. */
  least: PowerHeadroom | undefined;
}

export function sumOf(rows: PowerHeadroom[]): Sum {
  const sum: Sum = { count: rows.length, read: 0, figures: { permitted: 0, reserved: 0, worst: 0, measured: 0, headroom: 0, stranded: 0 }, least: rows[0] };
  const { figures } = sum;
  for (const row of rows) {
    const of = figuresOf(row);
    figures.permitted += of.permitted;
    figures.reserved += of.reserved;
    figures.worst += of.worst;
    figures.headroom += of.headroom;
    figures.stranded += of.stranded;
    figures.measured = of.measured === null || figures.measured === null ? null : figures.measured + of.measured;
    sum.read += of.measured === null ? 0 : 1;
  }
  return sum;
}

/** The feed letters of the report; empty: above the split into feeds. */
export function feedsOf(report: Report): string[] {
  const feeds = new Set([...report.values()].flatMap((rows) => rows.map(({ feed }) => feed ?? "")));
  return [...feeds].sort();
}
