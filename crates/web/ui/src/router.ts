import { signal } from "@preact/signals";

export interface Place {
  path: string;
  query: URLSearchParams;
}

function here(): Place {
  return { path: window.location.pathname, query: new URLSearchParams(window.location.search) };
}

export const location = signal<Place>(here());

export function navigate(to: string, { replace = false } = {}): void {
  const before = window.location.pathname;
  if (replace) {
    history.replaceState(null, "", to);
  } else {
    history.pushState(null, "", to);
  }
  location.value = here();
  if (window.location.pathname !== before) {
    window.scrollTo(0, 0);
  }
}

/** Changes fields of the query; null or "" removes one. */
export function setQuery(changes: Record<string, string | null>, { replace = true } = {}): void {
  const query = new URLSearchParams(location.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") {
      query.delete(name);
    } else {
      query.set(name, value);
    }
  }
  const text = query.toString();
  navigate(location.value.path + (text === "" ? "" : `?${text}`), { replace });
}

/** A path with a query; empty values are left out. */
export function link(path: string, query: Record<string, string> = {}): string {
  const entries = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(entries).toString();
  return text === "" ? path : `${path}?${text}`;
}

/** The parameters of `path` by `pattern` ("/nodes/:name"); null: it does not match. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/(.)\/$/, "$1").split("/");
  if (wanted.length !== given.length) {
    return null;
  }
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) {
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) {
      return null;
    }
  }
  return params;
}

function onClick(event: MouseEvent): void {
  const anchor = (event.target as Element | null)?.closest?.("a[href]");
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!(anchor instanceof HTMLAnchorElement) || !isPlain || event.defaultPrevented) {
    return;
  }
  const isOurs = anchor.origin === window.location.origin && !anchor.target && !anchor.hasAttribute("download");
  const isInPage = anchor.getAttribute("href")?.startsWith("#");
  if (isOurs && !isInPage) {
    event.preventDefault();
    navigate(anchor.pathname + anchor.search + anchor.hash);
  }
}

export function startRouter(): void {
  document.addEventListener("click", onClick);
  window.addEventListener("popstate", () => {
    location.value = here();
  });
}
