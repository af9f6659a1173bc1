import type { Cluster } from "../api";
import { pages } from "../client";
import { useNodes } from "../fleet/store";
import { imageShort } from "../names";
import { useWork } from "../use-call";
import { nameOf } from "../clusters/words";

/** Who has an image version, or is to get it. */
export interface Use {
  nodes: number;
  clusters: string[];
}

export interface Uses {
  /** By `debian@b3-…`. */
  of: Map<string, Use>;
  /** Everything was read. */
  isKnown: boolean;
}

function useOf(uses: Map<string, Use>, image: string): Use {
  const known = uses.get(image) ?? { nodes: 0, clusters: [] };
  uses.set(image, known);
  return known;
}

/** The uses of all image versions, as far as the member sees nodes and clusters. */
export function useImageUses(): Uses {
  const store = useNodes("");
  store.version.value;
  const { data: clusters } = useWork(
    (signal): Promise<Cluster[]> =>
      pages(
        "ClusterService/ListClusters",
        { pageSize: 1_000, filter: "state != released" },
        (page) => page.clusters,
        signal,
      ),
    "clusters with images",
    { everyMs: 20_000 },
  );
  const of = new Map<string, Use>();
  for (const { image } of store.rows.values()) {
    if (image !== "") {
      useOf(of, image).nodes += 1;
    }
  }
  for (const cluster of clusters ?? []) {
    const image = imageShort(cluster.spec?.deployment?.image);
    if (image !== "") {
      useOf(of, image).clusters.push(nameOf(cluster));
    }
  }
  return { of, isKnown: store.isSynced.value && clusters !== undefined };
}
