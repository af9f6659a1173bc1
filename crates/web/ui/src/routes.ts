import type { FunctionComponent } from "preact";
import type { Role } from "./api";
import { lazy } from "./lazy";
import { ActivityPage } from "./pages/activity";
import { ClusterPage } from "./pages/cluster";
import { ClustersPage } from "./pages/clusters";
import { FabricPage } from "./pages/fabric";
import { FleetPage } from "./pages/fleet";
import { ImagesPage } from "./pages/images";
import { LoginPage } from "./pages/login";
import { MembersPage } from "./pages/members";
import { MinePage } from "./pages/mine";
import { NodePage } from "./pages/node";
import { NodesPage } from "./pages/nodes";
import { OrderPage } from "./pages/order";
import { SessionsPage } from "./pages/sessions";
import { PowerPage } from "./pages/power";
import { RacksPage } from "./pages/racks";
import type { IconName } from "./parts/icon";
import { match } from "./router";
import { callersOf, CUSTOMERS, SITE } from "./roles";
import { session } from "./session";

export interface PageProps {
  params: Record<string, string>;
}

export interface Route {
  /** "/nodes/:name" */
  path: string;
  title(params: Record<string, string>): string;
  page: FunctionComponent<PageProps>;
  /** The entry in the navigation; absent: none. */
  nav?: { label: string; icon: IconName; group: "Hall" | "Work" | "Site" };
  /** The roles that have the page; absent: all. */
  roles?: Role[];
  /** Without the navigation and the header. */
  isBare?: boolean;
}

/** Every page of the console. The navigation has the entries in this order. */
export const ROUTES: Route[] = [
  {
    path: "/",
    title: () => "Fleet",
    page: FleetPage,
    nav: { label: "Fleet", icon: "fleet", group: "Hall" },
    roles: SITE,
  },
  {
    path: "/",
    title: () => "Home",
    page: MinePage,
    nav: { label: "Home", icon: "fleet", group: "Hall" },
    roles: CUSTOMERS,
  },
  { path: "/", title: () => "Activity", page: ActivityPage, roles: ["ROLE_AUDITOR"] },
  {
    path: "/nodes",
    title: () => "Nodes",
    page: NodesPage,
    nav: { label: "Nodes", icon: "node", group: "Hall" },
    roles: callersOf("NodeService/WatchNodes"),
  },
  {
    path: "/nodes/:name",
    title: ({ name }) => name ?? "Node",
    page: NodePage,
    roles: callersOf("NodeService/GetNode"),
  },
  {
    path: "/racks",
    title: () => "Racks",
    page: RacksPage,
    nav: { label: "Racks", icon: "rack", group: "Hall" },
    roles: SITE,
  },
  {
    path: "/power",
    title: () => "Power and cooling",
    page: PowerPage,
    nav: { label: "Power", icon: "power", group: "Hall" },
    roles: SITE,
  },
  {
    path: "/fabric",
    title: () => "Fabric",
    page: FabricPage,
    nav: { label: "Fabric", icon: "fabric", group: "Hall" },
    roles: SITE,
  },
  {
    path: "/clusters",
    title: () => "Clusters",
    page: ClustersPage,
    nav: { label: "Clusters", icon: "cluster", group: "Work" },
    roles: callersOf("ClusterService/ListClusters"),
  },
  {
    path: "/clusters/new",
    title: () => "Create a cluster",
    page: OrderPage,
    roles: callersOf("ClusterService/CreateCluster"),
  },
  {
    path: "/clusters/:name",
    title: ({ name }) => name ?? "Cluster",
    page: ClusterPage,
    roles: callersOf("ClusterService/GetCluster"),
  },
  {
    path: "/activity",
    title: () => "Activity",
    page: ActivityPage,
    nav: { label: "Activity", icon: "pulse", group: "Work" },
    roles: callersOf("EventService/StreamEvents"),
  },
  {
    path: "/images",
    title: () => "Images",
    page: ImagesPage,
    nav: { label: "Images", icon: "image", group: "Work" },
    roles: callersOf("ImageService/ListImages"),
  },
  {
    path: "/discovery",
    title: () => "Discovery",
    page: lazy("DiscoveryPage"),
    nav: { label: "Discovery", icon: "search", group: "Work" },
    roles: callersOf("DiscoveryService/ListDiscoveries"),
  },
  {
    path: "/usage",
    title: () => "Usage",
    page: lazy("UsagePage"),
    nav: { label: "Usage", icon: "usage", group: "Site" },
    roles: callersOf("MeteringService/SumUsage"),
  },
  {
    path: "/members",
    title: () => "Members",
    page: MembersPage,
    nav: { label: "Members", icon: "people", group: "Site" },
    roles: callersOf("AuthService/ListMembers"),
  },
  {
    path: "/audit",
    title: () => "Audit",
    page: lazy("AuditPage"),
    nav: { label: "Audit", icon: "list", group: "Site" },
    roles: callersOf("AuditService/ListAudit"),
  },
  {
    path: "/sessions",
    title: () => "Logins",
    page: SessionsPage,
    nav: { label: "Logins", icon: "settings", group: "Site" },
    roles: callersOf("SessionService/ListSessions"),
  },
  { path: "/login", title: () => "Log in", page: LoginPage, isBare: true },
];

export function findRoute(path: string): { route: Route; params: Record<string, string> } | null {
  const role = session.value?.role;
  for (const route of ROUTES) {
    const isTheirs = role === undefined || !route.roles || route.roles.includes(role);
    const params = isTheirs ? match(route.path, path) : null;
    if (params !== null) {
      return { route, params };
    }
  }
  return null;
}
