import { signal } from "@preact/signals";
import type { Role, WhoAmIResponse } from "./api";
import { readError, unreachable } from "./errors";
import { navigate, location } from "./router";

/** The member who is logged in; null: not known yet. */
export const session = signal<WhoAmIResponse | null>(null);

const ASKED_FOR = "rackwright.asked-for";
const ASKED_FOR_MS = 10 * 60_000;

const ROLE_WORDS: Record<Role, string> = {
  ROLE_UNSPECIFIED: "unknown",
  ROLE_VIEWER: "viewer",
  ROLE_OPERATOR: "operator",
  ROLE_CUSTOMER_ADMIN: "customer-admin",
  ROLE_CUSTOMER_USER: "customer-user",
  ROLE_AUDITOR: "auditor",
};

export function roleWord(role: Role | undefined): string {
  return ROLE_WORDS[role ?? "ROLE_UNSPECIFIED"] ?? "unknown";
}

export function isOperator(): boolean {
  return session.value?.role === "ROLE_OPERATOR";
}

/** A member of the site, not of a customer. */
export function isOfSite(): boolean {
  return session.value?.role === "ROLE_OPERATOR" || session.value?.role === "ROLE_VIEWER";
}

/** The session has ended, or there was none: shows the login page, and remembers the page. */
export function signOutHere(): void {
  session.value = null;
  const { path } = location.value;
  if (path === "/login") {
    return;
  }
  const page = path + window.location.search;
  localStorage.setItem(ASKED_FOR, JSON.stringify({ page, time: Date.now() }));
  navigate("/login", { replace: true });
}

/** The page that was asked for before the login, once. */
export function takeAskedFor(): string {
  const text = localStorage.getItem(ASKED_FOR);
  localStorage.removeItem(ASKED_FOR);
  try {
    const { page, time } = JSON.parse(text ?? "{}") as { page?: string; time?: number };
    const isOurs = page !== undefined && /^\/(?!\/)/.test(page);
    return isOurs && Date.now() - (time ?? 0) < ASKED_FOR_MS ? page : "/";
  } catch {
    return "/";
  }
}

const BY_PROVIDER = "rackwright.by-provider";

/** Goes to the identity provider. */
export function leaveForProvider(): void {
  sessionStorage.setItem(BY_PROVIDER, "yes");
  window.location.assign("/auth/oidc");
}

/** After a login by the identity provider, the browser is at `/`: opens the page that was asked for before. */
export function returnFromProvider(): void {
  const isBack = sessionStorage.getItem(BY_PROVIDER) !== null;
  sessionStorage.removeItem(BY_PROVIDER);
  if (isBack && location.value.path === "/") {
    navigate(takeAskedFor(), { replace: true });
  }
}

async function postAuth(path: string, body: unknown): Promise<void> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }).catch(() => {
    throw unreachable(path);
  });
  if (!response.ok) {
    throw readError(path, await response.json().catch(() => null), response.status);
  }
}

export async function logIn(token: string): Promise<void> {
  await postAuth("/auth/login", { token });
}

export async function logOut(): Promise<void> {
  await postAuth("/auth/logout", {});
  session.value = null;
  localStorage.removeItem(ASKED_FOR);
  navigate("/login");
}
