import type { ComponentChildren } from "preact";
import { words, type Row } from "../fleet/row";
import { StateBadge } from "../parts/state";
import { Ago, Dash, NodeLink } from "../parts/text";
import { isOfSite } from "../session";
import { nodeState, NODE_STATES, type Word } from "../words";

export interface NodeColumn {
  key: string;
  title: string;
  /** The text may be longer than the column. Clipping costs time, so other columns are not clipped. */
  isLong?: boolean;
  /** In pixels; 0: what is left. */
  width: number;
  cell(row: Row): ComponentChildren;
  /** What rows are sorted by. */
  value(row: Row): string | number;
}

function text(value: string): ComponentChildren {
  return value === "" ? <Dash /> : value;
}

function healthWord(health: string): Word {
  const tone = health === "ok" ? "good" : health === "unknown" ? "dim" : "bad";
  return { word: health, tone, key: tone };
}

/** The columns of the CLI's list, in its order, and further ones. */
export const COLUMNS: NodeColumn[] = [
  {
    key: "node",
    title: "node",
    isLong: true,
    width: 150,
    cell: (row) => <NodeLink id={row.id} />,
    value: (row) => row.id,
  },
  {
    key: "state",
    title: "state",
    width: 118,
    cell: (row) => <StateBadge state={nodeState(row.state)} />,
    value: (row) => NODE_STATES.indexOf(row.state as never),
  },
  {
    key: "health",
    title: "health",
    width: 126,
    cell: (row) => <StateBadge state={healthWord(row.health)} />,
    value: (row) => row.health,
  },
  { key: "since", title: "for", width: 64, cell: (row) => <Ago time={row.since} bare />, value: (row) => -row.since },
  { key: "power", title: "power", width: 92, cell: (row) => row.power, value: (row) => row.power },
  {
    key: "agent",
    title: "agent",
    width: 64,
    cell: (row) => (row.agent ? "yes" : "no"),
    value: (row) => Number(row.agent),
  },
  { key: "sku", title: "SKU", isLong: true, width: 108, cell: (row) => text(row.sku), value: (row) => row.sku },
  {
    key: "customer",
    title: "customer",
    isLong: true,
    width: 104,
    cell: (row) => text(row.customer),
    value: (row) => row.customer,
  },
  { key: "image", title: "image", isLong: true, width: 172, cell: (row) => text(row.image), value: (row) => row.image },
  {
    key: "address",
    title: "address",
    isLong: true,
    width: 130,
    cell: (row) => text(row.address),
    value: (row) => row.address,
  },
  {
    key: "waits",
    title: "waits for, or reason",
    isLong: true,
    width: 0,
    cell: (row) => <span class={row.reason ? "bad-text" : undefined}>{text(words(row))}</span>,
    value: words,
  },
];

const USUAL = ["node", "state", "health", "since", "power", "sku", "customer", "image", "waits"];

/** A column for a label: its key is "labels.KEY". */
export function columnOf(key: string): NodeColumn | undefined {
  if (key.startsWith("labels.")) {
    const label = key.slice("labels.".length);
    return {
      key,
      title: label,
      isLong: true,
      width: 110,
      cell: (row) => text(row.labels[label] ?? ""),
      value: (row) => row.labels[label] ?? "",
    };
  }
  return COLUMNS.find((column) => column.key === key);
}

/** The columns of the query; the node's name always comes first. */
export function columnsOf(query: string | null): NodeColumn[] {
  const usual = isOfSite() ? USUAL : USUAL.filter((key) => key !== "health");
  const keys = query === null || query === "" ? usual : query.split(",");
  const wanted = ["node", ...keys.filter((key) => key !== "node")];
  return wanted.map(columnOf).filter((column) => column !== undefined);
}
