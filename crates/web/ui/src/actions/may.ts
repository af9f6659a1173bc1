import { isOperator, roleWord, session } from "../session";
import type { Verb } from "./verb";

/** Why the member may not do it; empty: the member may. */
export function forbids(verb: Verb): string {
  const { role, controlPaused } = session.value ?? {};
  if (controlPaused) {
    return "The control plane is paused";
  }
  if (isOperator()) {
    return "";
  }
  const isCustomer = role === "ROLE_CUSTOMER_ADMIN" || role === "ROLE_CUSTOMER_USER";
  return isCustomer && verb.isForCustomers ? "" : `The role ${roleWord(role)} may not do this`;
}
