import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { follow } from "./client";
import { isOfSite, session } from "./session";

const title = signal("");

/** The title of the site; empty: not known. Only members of the site may ask for it. */
export function useSite(): string {
  const isWanted = isOfSite();
  useEffect(() => {
    if (!isWanted || title.value !== "") {
      return undefined;
    }
    const stop = new AbortController();
    const take = (text: string) => {
      title.value = text;
      stop.abort();
    };
    void follow(
      "SiteService/GetSite",
      () => ({}),
      {
        // The files follow; only the first message is wanted.
        message: (message) => message.site && take(message.site.title || "untitled site"),
        failed: ({ code }) =>
          ["not_found", "failed_precondition"].includes(code) ? take("no site applied") : take("site unknown"),
        ended: () => undefined,
      },
      stop.signal,
    );
    return () => stop.abort();
  }, [isWanted, session.value?.member]);
  return title.value;
}
