import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { ListAlarmsResponse, TopologyRack } from "../api";
import { Facts, Panel } from "../parts/panel";
import { link } from "../router";
import { count, plural } from "../units";

const COOLED_BY = /^(cdu|crah|rear-door|cooling)\//;
const SHOWN = 6;

/** What is known of the cooling: loops of racks, readings and alarms. */
export function CoolingPanel({ racks, alarms }: { racks: TopologyRack[]; alarms: ListAlarmsResponse | undefined }) {
  const loops = useMemo(() => {
    const made = new Map<string, { racks: number; nodes: number }>();
    for (const { coolingLoop = "", machines = [] } of racks) {
      const loop = made.get(coolingLoop) ?? { racks: 0, nodes: 0 };
      loop.racks += 1;
      loop.nodes += machines.filter(({ name }) => name?.startsWith("nodes/")).length;
      made.set(coolingLoop, loop);
    }
    return made;
  }, [racks]);
  const air = loops.get("");
  const liquid = [...loops].filter(([name]) => name !== "");
  const coverage = (alarms?.coverage ?? []).find(({ kind }) => kind === "cooling");
  const open = (alarms?.alarms ?? []).filter(({ subject = "", kind }) => COOLED_BY.test(subject) || kind === "temperature");
  return (
    <Panel title="Cooling">
      <Facts
        rows={[
          ["units read", coverage ? `${count(coverage.read ?? 0)} of ${count(coverage.known ?? 0)}${(coverage.read ?? 0) < (coverage.known ?? 0) ? "; the state of the others is unknown" : ""}` : "unknown: the site file names no cooling unit with an address"],
          ["open alarms", alarms === undefined ? "unknown" : count(open.length)],
          ["by air", air ? `${plural(air.racks, "rack")}, ${plural(air.nodes, "node")}` : "no rack"],
          ...liquid.slice(0, SHOWN).map(([name, { racks: number, nodes }]): [string, ComponentChildren] => [
            "by liquid",
            <a key={name} href={link("/racks", { q: name })}>
              {name}: {plural(number, "rack")}, {plural(nodes, "node")}
            </a>,
          ]),
        ]}
      />
      {liquid.length > SHOWN && <p class="dim">{plural(liquid.length - SHOWN, "further cooling loop")}</p>}
      <p class="dim small">Heat, flow and temperatures of single units are known only where an alarm tells them.</p>
    </Panel>
  );
}
