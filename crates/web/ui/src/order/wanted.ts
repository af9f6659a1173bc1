import type { ClusterSpec } from "../api";
import { imageWord, lines } from "../clusters/image-field";
import { shellWord } from "../names";

/** An order as the fields have it. */
export interface Wanted {
  name: string;
  customer: string;
  sku: string;
  nodes: string;
  spares: string;
  bandwidth: string;
  image: string;
  keys: string;
  userData: string;
  /** Local form, in UTC; empty: no end. */
  leaseEnd: string;
  labels: string;
}

const NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const BANDWIDTH = /^(non-blocking|best-effort|\d+:\d+)$/;

function wholes(text: string, least: number): boolean {
  return /^\d+$/.test(text.trim()) && Number(text) >= least;
}

/** Why it cannot be planned yet; empty: it can. */
export function whyNotPlan({ customer, sku, nodes, spares, bandwidth }: Wanted): string {
  if (customer.trim() === "") {
    return "Give the customer";
  }
  if (sku.trim() === "") {
    return "Choose a SKU";
  }
  if (!wholes(nodes, 1) || !wholes(spares, 0)) {
    return "Give whole numbers: at least one node";
  }
  return BANDWIDTH.test(bandwidth.trim())
    ? ""
    : "The bandwidth is non-blocking, best-effort, or nodes to uplinks such as 2:1";
}

/** Why it cannot be created yet, though it fits; empty: it can. */
export function whyNotCreate({ name, image, leaseEnd }: Wanted): string {
  if (!NAME.test(name.trim())) {
    return "Give a name: 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last";
  }
  if (image === "") {
    return "Choose an image";
  }
  return leaseEnd !== "" && !(Date.parse(`${leaseEnd}Z`) > Date.now()) ? "The lease must end in the future" : "";
}

function leaseTime({ leaseEnd }: Wanted): string | undefined {
  const time = Date.parse(`${leaseEnd}Z`);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

/** What decides the placement: a plan is valid for the same text. */
export function planKey(wanted: Wanted): string {
  const { customer, sku, nodes, spares, bandwidth } = wanted;
  return [customer, sku, nodes, spares, bandwidth].map((text) => text.trim()).join("\n");
}

export function specOf(wanted: Wanted): ClusterSpec {
  return {
    customer: wanted.customer.trim(),
    sku: wanted.sku.trim(),
    nodes: Number(wanted.nodes),
    spares: Number(wanted.spares),
    bandwidth: wanted.bandwidth.trim(),
    deployment: { image: wanted.image, sshAuthorizedKeys: lines(wanted.keys), userData: wanted.userData },
    leaseEnd: leaseTime(wanted),
  };
}

/** `team=ml, purpose=training` */
export function labelsOf(text: string): Record<string, string> {
  const pairs = text.split(/[\s,]+/).filter((pair) => pair.includes("="));
  return Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

export function createCommand(wanted: Wanted): string {
  const words = [
    `rackwright cluster create ${shellWord(wanted.name.trim() || "NAME")}`,
    `--customer ${shellWord(wanted.customer.trim() || "NAME")}`,
    `--sku ${shellWord(wanted.sku.trim() || "SKU")}`,
    `--nodes ${wanted.nodes.trim() || "N"}`,
    wanted.spares.trim() !== "0" && `--spares ${wanted.spares.trim() || "N"}`,
    wanted.bandwidth.trim() !== "non-blocking" && `--bandwidth ${shellWord(wanted.bandwidth.trim())}`,
    `--image ${shellWord(imageWord(wanted.image) || "IMAGE")}`,
    lines(wanted.keys).length > 0 && "--ssh-key FILE",
    wanted.userData !== "" && "--user-data FILE",
    leaseTime(wanted) && `--lease-end ${leaseTime(wanted)?.replace(".000", "")}`,
    ...Object.entries(labelsOf(wanted.labels)).map(([key, value]) => `--label ${shellWord(`${key}=${value}`)}`),
  ];
  return words.filter(Boolean).join(" ");
}
