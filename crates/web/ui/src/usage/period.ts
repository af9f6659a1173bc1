import { location } from "../router";

export interface Period {
  /** `2026-11` */
  month: string;
  startTime: string;
  /** Absent: now. */
  endTime: string | undefined;
}

function monthOf(time: Date): string {
  return time.toISOString().slice(0, 7);
}

export function thisMonth(): string {
  return monthOf(new Date());
}

/** The newest months, this one first. */
export function months(count: number): string[] {
  const now = new Date();
  return Array.from({ length: count }, (_, back) =>
    monthOf(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1))),
  );
}

/** A calendar month in UTC, from the address; the present one ends now. */
export function usePeriod(): Period {
  const given = location.value.query.get("month") ?? "";
  const month = /^\d{4}-(0[1-9]|1[0-2])$/.test(given) ? given : thisMonth();
  const [year = 0, number = 1] = month.split("-").map(Number);
  const end = new Date(Date.UTC(year, number, 1));
  return {
    month,
    startTime: `${month}-01T00:00:00Z`,
    endTime: end.getTime() > Date.now() ? undefined : `${monthOf(end)}-01T00:00:00Z`,
  };
}
