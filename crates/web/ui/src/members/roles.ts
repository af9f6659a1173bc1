import type { Role } from "../api";
import { isOperator, roleWord } from "../session";

const OF_SITE: Role[] = ["ROLE_VIEWER", "ROLE_OPERATOR", "ROLE_AUDITOR"];
const OF_CUSTOMER: Role[] = ["ROLE_CUSTOMER_USER", "ROLE_CUSTOMER_ADMIN"];

const RIGHTS: Partial<Record<Role, string>> = {
  ROLE_OPERATOR: "reads and changes everything",
  ROLE_VIEWER: "reads everything but secrets and the audit",
  ROLE_AUDITOR: "reads only the audit, events and members",
  ROLE_CUSTOMER_USER: "sees the customer's nodes and clusters, reimages them, uses their consoles",
  ROLE_CUSTOMER_ADMIN: "as a customer-user, and sees usage, releases clusters, manages the customer's members",
};

export function isOfCustomer(role: Role): boolean {
  return OF_CUSTOMER.includes(role);
}

/** The roles that the caller may give to a new member. */
export function grantable(): Role[] {
  return isOperator() ? [...OF_SITE, ...OF_CUSTOMER] : OF_CUSTOMER;
}

/** The roles that a member with this role can get: of the site, or of its customer. */
export function alike(role: Role | undefined): Role[] {
  return role !== undefined && isOfCustomer(role) ? OF_CUSTOMER : OF_SITE;
}

/** Roles for a select: `viewer: reads everything ...`. */
export function roleOptions(roles: Role[]): [string, string][] {
  return roles.map((role): [string, string] => [role, `${roleWord(role)}: ${RIGHTS[role] ?? ""}`]);
}
