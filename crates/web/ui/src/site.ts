import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { follow } from "./client";
import { isOfSite, session } from "./session";

/** The site of the control plane; null: not known yet. */
export const site = signal<{ title: string; isApplied: boolean } | null>(null);

/** Reads the site once. Only members of the site may. */
export function useSite(): string {
  const isWanted = isOfSite();
  useEffect(() => {
    if (!isWanted || site.value !== null) {
      return undefined;
    }
    const stop = new AbortController();
    const take = (title: string, isApplied: boolean) => {
      site.value = { title, isApplied };
      stop.abort();
    };
    void follow(
      "SiteService/GetSite",
      () => ({}),
      {
        // The files follow; only the first message is wanted.
        message: (message) => message.site && take(message.site.title || "untitled site", true),
        failed: ({ code }) =>
          ["not_found", "failed_precondition"].includes(code)
            ? take("no site applied", false)
            : take("site unknown", true),
        ended: () => undefined,
      },
      stop.signal,
    );
    return () => stop.abort();
  }, [isWanted, session.value?.member]);
  return site.value?.title ?? "";
}
