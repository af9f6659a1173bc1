import type { Role } from "./api";
import type { Method, Stream } from "./client";
import { roleWord, session } from "./session";

const OPERATOR: Role[] = ["ROLE_OPERATOR"];
/** Members of the site, without auditors. */
export const SITE: Role[] = ["ROLE_OPERATOR", "ROLE_VIEWER"];
export const CUSTOMERS: Role[] = ["ROLE_CUSTOMER_ADMIN", "ROLE_CUSTOMER_USER"];
const TENANTS: Role[] = [...SITE, ...CUSTOMERS];
const HOLDERS: Role[] = ["ROLE_OPERATOR", ...CUSTOMERS];
const ADMINS: Role[] = ["ROLE_OPERATOR", "ROLE_CUSTOMER_ADMIN"];
const ALL: Role[] = [...TENANTS, "ROLE_AUDITOR"];

/** Who may make a call, as in docs/identity.md. Calls that are not here: reads by members of the site, changes by operators. */
const CALLERS: Partial<Record<Method | Stream, Role[]>> = {
  "AuditService/ListAudit": ["ROLE_OPERATOR", "ROLE_AUDITOR"],
  "AuthService/CreateToken": ADMINS,
  "AuthService/DeleteMember": ADMINS,
  "AuthService/DeleteToken": ADMINS,
  "AuthService/ListMembers": [...SITE, "ROLE_CUSTOMER_ADMIN", "ROLE_AUDITOR"],
  "AuthService/ListTokens": [...SITE, "ROLE_CUSTOMER_ADMIN"],
  "AuthService/RevokeMember": ADMINS,
  "AuthService/SetMemberRole": ADMINS,
  "ClusterService/GetCapacity": TENANTS,
  "ClusterService/GetCluster": TENANTS,
  "ClusterService/GetHandoverPack": TENANTS,
  "ClusterService/ListClusters": TENANTS,
  "ClusterService/PlanCluster": SITE,
  "ClusterService/PlanClusterResize": SITE,
  "ClusterService/ReimageCluster": HOLDERS,
  "ClusterService/ReleaseCluster": ADMINS,
  "ClusterService/ResumeClusterReimage": HOLDERS,
  "ClusterService/RollBackCluster": HOLDERS,
  "ConsoleService/AddSshKey": HOLDERS,
  "ConsoleService/ListConsoleBoots": TENANTS,
  "ConsoleService/ListSshKeys": TENANTS,
  "ConsoleService/ReadConsoleLog": TENANTS,
  "ConsoleService/RemoveSshKey": HOLDERS,
  "EventService/StreamEvents": ALL,
  "ImageService/GetImage": TENANTS,
  "ImageService/ListImages": TENANTS,
  "MeteringService/ListUsage": [...SITE, "ROLE_CUSTOMER_ADMIN"],
  "MeteringService/ListUsageBreaches": [...SITE, "ROLE_CUSTOMER_ADMIN"],
  "MeteringService/SumUsage": [...SITE, "ROLE_CUSTOMER_ADMIN"],
  "NodeService/GetNode": TENANTS,
  "NodeService/ListNodes": TENANTS,
  "NodeService/ReimageNode": HOLDERS,
  "NodeService/SetNodePower": HOLDERS,
  "NodeService/SummarizeFleet": TENANTS,
  "NodeService/WatchNodes": TENANTS,
  "OperationService/GetOperation": TENANTS,
  "OperationService/ListOperations": TENANTS,
  "SessionService/CreateApiKey": ALL,
  "SessionService/DeleteApiKey": ALL,
  "SessionService/EndSession": ALL,
  "SessionService/ListApiKeys": ALL,
  "SessionService/ListSessions": ALL,
};

export function callersOf(method: Method | Stream): Role[] {
  const isRead = /\/(Get|List|Plan|Explain|Watch|Stream|Sum)/.test(method);
  return CALLERS[method] ?? (isRead ? SITE : OPERATOR);
}

/** Whether the member may make the call at all. */
export function mayCall(method: Method | Stream): boolean {
  const role = session.value?.role;
  return role !== undefined && callersOf(method).includes(role);
}

/** Why the member may not make a change now; empty: the member may. */
export function whyNotCall(method: Method): string {
  if (!mayCall(method)) {
    return `The role ${roleWord(session.value?.role)} may not do this`;
  }
  return session.value?.controlPaused ? "The control plane is paused" : "";
}

/** Why the member may not do this to a node; empty: the member may. */
export function forbids(verb: { isForCustomers?: boolean }): string {
  const role = session.value?.role;
  const may: Role[] = verb.isForCustomers ? HOLDERS : OPERATOR;
  if (role === undefined || !may.includes(role)) {
    return `The role ${roleWord(role)} may not do this`;
  }
  return session.value?.controlPaused ? "The control plane is paused" : "";
}

/** Why the member may not type at a console; empty: the member may. */
export function whyNotType(): string {
  const role = session.value?.role;
  return role !== undefined && HOLDERS.includes(role) ? "" : `The role ${roleWord(role)} may only watch`;
}

/** The customer of the member; empty: a member of the site. */
export function ownCustomer(): string {
  return session.value?.customer ?? "";
}
