import { useEffect, useState } from "preact/hooks";
import { atOnce } from "../hall/at-once";
import { readBundles } from "../hall/topology";
import { asApiError, type ApiError } from "../errors";
import { short } from "../names";
import type { Fabric, Unit } from "./model";

/** The picture is drawn again after this many units. */
const STEP = 64;

export interface MembersRead {
  /** The nodes of each unit, by its key. */
  members: ReadonlyMap<string, string[]>;
  done: number;
  of: number;
  error: ApiError | null;
}

const natural = new Intl.Collator("en", { numeric: true });

async function nodesOf(unit: Unit, signal: AbortSignal): Promise<string[]> {
  const bundles = await readBundles(unit.leaves[0]?.name ?? "", signal);
  const nodes = bundles.flatMap(({ b }) => (b?.startsWith("nodes/") ? [short("nodes", b)] : []));
  return nodes.sort(natural.compare);
}

/** Reads the nodes of every unit from the cables of its first leaf: all leaves of a unit serve the same nodes. */
export function useMembers(fabric: Fabric): MembersRead {
  const [read, setRead] = useState<MembersRead>({ members: new Map(), done: 0, of: 0, error: null });
  useEffect(() => {
    const stop = new AbortController();
    const units = fabric.pods.flatMap((pod) => pod.units);
    const members = new Map<string, string[]>();
    const tell = (error: ApiError | null = null) => setRead({ members: new Map(members), done: members.size, of: units.length, error });
    tell();
    const work = async (unit: Unit) => {
      members.set(unit.key, await nodesOf(unit, stop.signal));
      if (members.size % STEP === 0) {
        tell();
      }
    };
    atOnce(units, work).then(
      () => !stop.signal.aborted && tell(),
      (error: unknown) => !stop.signal.aborted && tell(asApiError(error, "GetTopology")),
    );
    return () => stop.abort();
  }, [fabric]);
  return read;
}
