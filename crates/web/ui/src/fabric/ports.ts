import { atOnce } from "../hall/at-once";
import { readBundles, readSwitches } from "../hall/topology";
import { fabricOf, fabricsOf, type Unit } from "./model";

export interface NodePort {
  leaf: string;
  fabric: string;
  rail: number | undefined;
  /** Of the cables between the node and the leaf. */
  labels: string[];
}

/** The leaves of a node. The API has the cables of switches only, so the first leaf of every unit is asked. */
export async function findPorts(id: string): Promise<NodePort[]> {
  const { signal } = new AbortController();
  const switches = await readSwitches(signal);
  const cablesAt = async (leaf: string) => (await readBundles(leaf, signal)).find(({ b }) => b === `nodes/${id}`);
  const ports: NodePort[] = [];
  for (const fabric of fabricsOf(switches)) {
    const units = fabricOf(switches, fabric).pods.flatMap((pod) => pod.units);
    let found: Unit | undefined;
    await atOnce(units, async (unit) => {
      if (found === undefined && (await cablesAt(unit.leaves[0]?.name ?? "")) !== undefined) {
        found = unit;
      }
    });
    const bundles = await atOnce(found?.leaves ?? [], async ({ name = "", rail }) => ({ name, rail, bundle: await cablesAt(name) }));
    ports.push(...bundles.flatMap(({ name, rail, bundle }) => (bundle ? [{ leaf: name, fabric, rail, labels: bundle.labels ?? [] }] : [])));
  }
  return ports;
}
