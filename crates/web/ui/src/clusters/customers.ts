import type { Cluster, Member } from "../api";
import { pages } from "../client";
import { mayCall, ownCustomer } from "../roles";
import { ApiError } from "../errors";
import { useWork } from "../use-call";

/** Customers that the console has met: the API has no list of them. */
export function useCustomers(): string[] {
  const own = ownCustomer();
  const { data } = useWork(
    async (signal) => {
      const clusters: Cluster[] = await pages(
        "ClusterService/ListClusters",
        { pageSize: 1_000 },
        (page) => page.clusters,
        signal,
      );
      const members = mayCall("AuthService/ListMembers") ? await membersOrNone(signal) : [];
      const names = [...clusters.map(({ spec }) => spec?.customer), ...members.map(({ customer }) => customer)];
      return [...new Set(names.filter((name): name is string => Boolean(name)))].sort();
    },
    "customers",
    { isWanted: own === "" },
  );
  return own === "" ? (data ?? []) : [own];
}

/** The clusters alone name customers, too. */
async function membersOrNone(signal: AbortSignal): Promise<Member[]> {
  try {
    return await pages("AuthService/ListMembers", { pageSize: 1_000 }, (page) => page.members, signal);
  } catch (error) {
    if (error instanceof ApiError) {
      return [];
    }
    throw error;
  }
}
