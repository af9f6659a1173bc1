import type { TopologyBundle, TopologySwitch } from "../api";
import { readBundles } from "../hall/topology";
import { atOnce } from "../hall/at-once";
import { useWork } from "../use-call";

/** Fabrics up to this number of switches show each bundle; larger ones show the bundles of a chosen switch. */
const MOST = 48;
const NONE: TopologyBundle[] = [];

/** The cables between the switches of a small fabric. */
export function useTrunks(switches: TopologySwitch[]): TopologyBundle[] {
  const upper = switches.filter(({ level }) => level !== "leaf");
  const { data } = useWork(
    async (signal) => {
      const bundles = await atOnce(upper, ({ name = "" }) => readBundles(name, signal));
      return bundles.flat();
    },
    `trunks ${upper.map(({ name }) => name).join(" ")}`,
    { isWanted: switches.length <= MOST && upper.length > 0 },
  );
  return data ?? NONE;
}
