import { signal } from "@preact/signals";

export type Theme = "system" | "dark" | "light";

const KEY = "rackwright.theme";

function stored(): Theme {
  const text = localStorage.getItem(KEY);
  return text === "dark" || text === "light" ? text : "system";
}

export const theme = signal<Theme>(stored());
/** Grows when the colours change: canvases are drawn again. */
export const paletteVersion = signal(0);

function apply(): void {
  if (theme.value === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = theme.value;
  }
  paletteVersion.value += 1;
}

export function setTheme(next: Theme): void {
  theme.value = next;
  localStorage.setItem(KEY, next);
  apply();
}

export function startTheme(): void {
  apply();
  window.matchMedia("(prefers-color-scheme: light)").addEventListener("change", apply);
}

/** The value of a colour token, for canvases. */
export function colour(token: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(token).trim();
}
