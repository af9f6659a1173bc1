import type { SumUsageResponse, UsageSum } from "../api";
import { short } from "../names";

const HOURS = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Node-hours of exact node-seconds. */
export function hours(seconds: string | undefined): string {
  return HOURS.format(Number(seconds ?? 0) / 3_600);
}

const FIELDS = ["reservedNodeSeconds", "onDemandNodeSeconds", "nodeSeconds"] as const;

/** Bills are based on the total: one that differs from the sum of its rows is not shown. Empty: it is right. */
export function faultOf({ sums = [], total }: SumUsageResponse): string {
  for (const field of FIELDS) {
    const sum = sums.reduce((all, one) => all + BigInt(one[field] ?? "0"), 0n);
    const sent = BigInt(total?.[field] ?? "0");
    if (sum !== sent) {
      return `its rows sum to ${sum} node-seconds, but the total is ${sent}`;
    }
  }
  return "";
}

function cell(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The same form as `rackwright usage sum -o csv`. */
export function csv(sums: UsageSum[]): string {
  const head = [
    "customer",
    "cluster",
    "sku",
    "reserved_node_seconds",
    "on_demand_node_seconds",
    "node_seconds",
    "open",
  ];
  const rows = sums.map((sum) => [
    sum.customer ?? "",
    short("clusters", sum.cluster),
    sum.sku ?? "",
    sum.reservedNodeSeconds ?? "0",
    sum.onDemandNodeSeconds ?? "0",
    sum.nodeSeconds ?? "0",
    String(sum.open ?? false),
  ]);
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
