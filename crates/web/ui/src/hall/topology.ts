import type { GetTopologyResponse, TopologyBundle, TopologyKind, TopologyRack, TopologySwitch } from "../api";
import { call } from "../client";
import { ApiError } from "../errors";
import { isOfSite } from "../session";
import { useWork, type Called } from "../use-call";

const PAGE = 1_000;
const RELOAD_MS = 60_000;
/** The site may be changed while its pages are read. */
const TRIES = 3;

const known = new Map<string, { version: string; rows: unknown[] }>();

type Pick<T> = (response: GetTopologyResponse) => T[] | undefined;

async function readAll<T>(kind: TopologyKind, parent: string, rowsOf: Pick<T>, signal: AbortSignal): Promise<T[]> {
  const key = `${kind} ${parent}`;
  const cached = known.get(key);
  for (let tries = 0; tries < TRIES; tries += 1) {
    const rows: T[] = [];
    let pageToken = "";
    let version = "";
    do {
      const isProbe = cached !== undefined && version === "" && tries === 0;
      const page = await call("SiteService/GetTopology", { kind, parent, pageSize: isProbe ? 1 : PAGE, pageToken }, signal);
      if (isProbe && page.resourceVersion === cached.version) {
        return cached.rows as T[];
      }
      if (isProbe || (version !== "" && page.resourceVersion !== version)) {
        version = "changed";
        break;
      }
      version = page.resourceVersion ?? "unknown";
      rows.push(...(rowsOf(page) ?? []));
      pageToken = page.nextPageToken ?? "";
    } while (pageToken !== "");
    if (version !== "changed") {
      known.set(key, { version, rows });
      return rows;
    }
  }
  throw new ApiError("SiteService/GetTopology", "aborted", "the site was changed while it was read", "try again");
}

/** All racks of the site. The same array until the site changes. */
export function useRacks(): Called<TopologyRack[]> {
  return useWork((signal) => readAll("TOPOLOGY_KIND_RACKS", "", ({ racks }) => racks, signal), "racks", { isWanted: isOfSite(), everyMs: RELOAD_MS });
}

/** All switches of the site. The same array until the site changes. */
export function readSwitches(signal: AbortSignal): Promise<TopologySwitch[]> {
  return readAll("TOPOLOGY_KIND_SWITCHES", "", ({ switches }) => switches, signal);
}

export function useSwitches(): Called<TopologySwitch[]> {
  return useWork(readSwitches, "switches", { isWanted: isOfSite(), everyMs: RELOAD_MS });
}

/** The cables of one switch, by their other ends. */
export function readBundles(of: string, signal: AbortSignal): Promise<TopologyBundle[]> {
  return readAll("TOPOLOGY_KIND_BUNDLES", of, ({ bundles }) => bundles, signal);
}

/** The cables of one switch; nothing for an empty name. */
export function useBundles(of: string): Called<TopologyBundle[]> {
  return useWork((signal) => readBundles(of, signal), `bundles ${of}`, { isWanted: of !== "" });
}

/** The site has no site file yet. */
export function isWithoutSite(error: ApiError | null): boolean {
  return error?.code === "failed_precondition";
}
