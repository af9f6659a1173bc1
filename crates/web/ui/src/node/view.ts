import type { Explanation, Inventory, Node } from "../api";
import type { ApiError } from "../errors";
import type { Row } from "../fleet/row";

/** What the parts of a node's page show. */
export interface NodeView {
  id: string;
  node: Node;
  inventory: Inventory | undefined;
  row: Row;
  /** Undefined for customers, and until it is read. */
  explanation: Explanation | undefined;
  explainError: ApiError | null;
  reload(): void;
}
