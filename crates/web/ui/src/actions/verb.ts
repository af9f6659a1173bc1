import type { Row } from "../fleet/row";

/** What a dialog asks for beside the nodes. */
export interface Values {
  reason: string;
  image: string;
  customer: string;
  hostname: string;
  keys: string;
  userData: string;
  verifyDisk: boolean;
  force: boolean;
  acceptDrives: boolean;
  acceptTpm: string;
}

export const NO_VALUES: Values = {
  reason: "",
  image: "",
  customer: "",
  hostname: "",
  keys: "",
  userData: "",
  verifyDisk: false,
  force: false,
  acceptDrives: false,
  acceptTpm: "",
};

/** An action on nodes, as a verb of the CLI. */
export interface Verb {
  id: string;
  /** "Release" */
  label: string;
  /** What happens, in a sentence or two. */
  effect: string;
  /** What is lost on this node; empty: nothing. */
  loses(row: Row): string;
  /** Why it cannot be done to this node now, as the end of "the node is ..."; empty: it can. */
  cannot(row: Row): string;
  /** Fields that the dialog shows. */
  fields: (keyof Values)[];
  /** Fields that must have a value. */
  required: (keyof Values)[];
  send(row: Row, values: Values): Promise<unknown>;
  cli(ids: string[], values: Values): string[];
  /** Customers may do it to their own nodes. */
  isForCustomers?: boolean;
  /** Also for many nodes at once. */
  isBulk?: boolean;
}
