import type { FunctionComponent } from "preact";
import type { Role } from "./api";
import { FabricPage } from "./pages/fabric";
import { FleetPage } from "./pages/fleet";
import { LoginPage } from "./pages/login";
import { NodePage } from "./pages/node";
import { NodesPage } from "./pages/nodes";
import { PowerPage } from "./pages/power";
import { RacksPage } from "./pages/racks";
import type { IconName } from "./parts/icon";
import { match } from "./router";

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
  /** The roles whose navigation has the entry; absent: all. */
  roles?: Role[];
  /** Without the navigation and the header. */
  isBare?: boolean;
}

const SITE: Role[] = ["ROLE_OPERATOR", "ROLE_VIEWER"];

/** Every page of the console. The navigation has the entries in this order. */
export const ROUTES: Route[] = [
  { path: "/", title: () => "Fleet", page: FleetPage, nav: { label: "Fleet", icon: "fleet", group: "Hall" } },
  { path: "/nodes", title: () => "Nodes", page: NodesPage, nav: { label: "Nodes", icon: "node", group: "Hall" } },
  { path: "/nodes/:name", title: ({ name }) => name ?? "Node", page: NodePage },
  { path: "/racks", title: () => "Racks", page: RacksPage, nav: { label: "Racks", icon: "rack", group: "Hall" }, roles: SITE },
  { path: "/power", title: () => "Power and cooling", page: PowerPage, nav: { label: "Power", icon: "power", group: "Hall" }, roles: SITE },
  { path: "/fabric", title: () => "Fabric", page: FabricPage, nav: { label: "Fabric", icon: "fabric", group: "Hall" }, roles: SITE },
  { path: "/login", title: () => "Log in", page: LoginPage, isBare: true },
];

export function findRoute(path: string): { route: Route; params: Record<string, string> } | null {
  for (const route of ROUTES) {
    const params = match(route.path, path);
    if (params !== null) {
      return { route, params };
    }
  }
  return null;
}
