import { match } from "./router";

let patterns: string[] = [];

/** Set at the start: the parts must not import the pages, which import the parts. */
export function setKnownPages(paths: string[]): void {
  patterns = paths;
}

/** Whether the console has a page at this path. */
export function hasPage(path: string): boolean {
  return patterns.some((pattern) => match(pattern, path) !== null);
}
