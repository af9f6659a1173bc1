import { call, pages } from "../client";
import { ApiError } from "../errors";
import { short } from "../names";
import { useWork, type Called } from "../use-call";
import { atOnce } from "./at-once";

const RELOAD_MS = 30_000;

/** The cluster of each node, by their short names. */
export type ClusterOf = ReadonlyMap<string, string>;

async function read(signal: AbortSignal): Promise<ClusterOf> {
  const clusters = await pages("ClusterService/ListClusters", { pageSize: 1_000 }, (response) => response.clusters, signal);
  const live = clusters.filter(({ status }) => status?.state !== "CLUSTER_STATE_RELEASED");
  const known = new Map<string, string>();
  // The list has no members.
  await atOnce(live, async ({ name = "" }) => {
    const cluster = await call("ClusterService/GetCluster", { name }, signal).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === "not_found") {
        return undefined;
      }
      throw error;
    });
    for (const { node } of cluster?.status?.members ?? []) {
      known.set(short("nodes", node), short("clusters", name));
    }
  });
  return known;
}

/** Which cluster has which node. */
export function useClusterOf(isWanted: boolean): Called<ClusterOf> {
  return useWork(read, "cluster of each node", { isWanted, everyMs: RELOAD_MS });
}
