let isPage: (path: string) => boolean = () => false;

/** Set at the start: the parts must not import the pages, which import the parts. */
export function setKnownPages(test: (path: string) => boolean): void {
  isPage = test;
}

/** Whether the console has a page at this path that the member may see. */
export function hasPage(path: string): boolean {
  return isPage(path);
}
