import type { Row } from "./row";

/** Ways to group nodes; `of` is null for none. */
export const GROUPS: Record<string, { title: string; of: ((row: Row) => string) | null }> = {
  none: { title: "name", of: null },
  state: { title: "state", of: (row) => row.state },
  sku: { title: "SKU", of: (row) => row.sku },
  customer: { title: "customer", of: (row) => row.customer },
  rack: { title: "rack", of: (row) => row.labels["rack"] ?? "" },
};
