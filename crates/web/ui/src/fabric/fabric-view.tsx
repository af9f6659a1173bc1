import { useMemo } from "preact/hooks";
import type { FabricFault, TopologySwitch } from "../api";
import type { Row } from "../fleet/row";
import { useNodes } from "../fleet/store";
import { categoriesOf, useColours, type Colours } from "../hall/colours";
import { useClusterOf, type ClusterOf } from "../hall/clusters";
import { useBundles } from "../hall/topology";
import { Problem } from "../parts/problem";
import { location, setQuery } from "../router";
import { count, plural } from "../units";
import { ChosenSwitch } from "./chosen";
import { useTrunks } from "./trunks";
import type { Scene } from "./draw";
import type { Cell } from "./layout";
import { useMembers, type MembersRead } from "./members";
import { devicesOf, fabricOf } from "./model";
import { FabricPicture } from "./picture";
import { SwitchTable } from "./switches";

interface Props {
  name: string;
  all: TopologySwitch[];
  faults: FabricFault[];
  /** The fabric was compared with the site file. */
  isCompared: boolean;
  chosen: TopologySwitch | undefined;
}

function choose(name: string): void {
  setQuery({ switch: name, fault: null });
}

/** The picture of a fabric, and the table beside it. */
export function FabricView({ name, all, faults, isCompared, chosen }: Props) {
  const { query } = location.value;
  const by = query.get("by") === "state" ? "state" : "cluster";
  const fabric = useMemo(() => fabricOf(all, name), [all, name]);
  const switches = useMemo(() => all.filter((some) => (some.fabric ?? "") === name), [all, name]);
  const store = useNodes("");
  const version = store.version.value;
  const clusters = useClusterOf(true);
  const read = useMembers(fabric);
  const trunks = useTrunks(switches);
  const bundles = useBundles(chosen?.name ?? "");
  const colours = useColours();
  const fault = query.get("fault") ?? "";
  const look = useLook(by, store.rows, version, clusters.data, colours, read);
  const scene = useMemo<Omit<Scene, "layout">>(
    () => ({ ...look, faults, bundles: trunks, chosen: chosen ? { name: chosen.name ?? "", bundles: bundles.data ?? [] } : null, fault }),
    [look, faults, trunks, chosen, bundles.data, fault],
  );
  const shownFault = faults.find(({ id }) => id === fault);
  const faulty = useMemo(() => countFaults(faults), [faults]);
  const known = { rows: store.rows, clusterOf: clusters.data, faulty, isCompared };
  return (
    <>
      <Legend by={by} colours={colours} clusterOf={clusters.data} read={read} categories={look.categories} />
      <Problem error={clusters.error} doing="read the clusters" retry={clusters.reload} />
      <Problem error={read.error} doing="read the nodes of the leaves" />
      <div class="racks-both fabric-both">
        <FabricPicture
          fabric={fabric}
          members={read.members}
          scene={scene}
          colours={colours}
          version={version}
          label={`Fabric${name ? ` ${name}` : ""} with ${switches.length} switches as a tree. Plus and minus zoom, arrow keys move. The table beside has the same content.`}
          focus={shownFault ? devicesOf(shownFault) : []}
          choose={choose}
          tip={(cell) => <CellTip cell={cell} {...known} />}
        />
        {chosen ? <ChosenSwitch of={chosen} bundles={bundles} faults={faults} choose={choose} /> : <SwitchTable switches={switches} faulty={faulty} choose={choose} />}
      </div>
    </>
  );
}

function countFaults(faults: FabricFault[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of faults.flatMap((fault) => [...new Set(devicesOf(fault))])) {
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

/** Colours of nodes, and of leaves by the clusters of their nodes. */
function useLook(by: "state" | "cluster", rows: ReadonlyMap<string, Row>, version: number, clusterOf: ClusterOf | undefined, colours: Colours, { members }: MembersRead) {
  return useMemo(() => {
    const categories = categoriesOf(clusterOf?.values() ?? []);
    const clusterColour = (name: string | undefined) => (name === undefined ? "" : (colours.categories[categories.get(name) ?? 0] ?? ""));
    const nodeColour = (name: string) => {
      const row = rows.get(name);
      if (by === "state") {
        return row === undefined ? "" : (colours.states.get(row.state) ?? "");
      }
      return clusterColour(clusterOf?.get(name)) || colours.of["line-strong"];
    };
    const known = new Map<string, [string, number][]>();
    for (const [unit, nodes] of by === "cluster" ? members : []) {
      const counts = new Map<string, number>();
      nodes.forEach((node) => {
        const colour = clusterColour(clusterOf?.get(node));
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
      });
      known.set(unit, [...counts].sort(([a], [b]) => Number(a === "") - Number(b === "")).map(([colour, number]) => [colour, number / nodes.length]));
    }
    return { categories, nodeColour, shares: (unit: string) => known.get(unit) ?? [] };
  }, [by, rows, by === "state" ? version : 0, clusterOf, colours, members]);
}

function Legend({ by, colours, clusterOf, read, categories }: { by: string; colours: Colours; clusterOf: ClusterOf | undefined; read: MembersRead; categories: Map<string, number> }) {
  const counts = useMemo(() => {
    const nodes = new Set([...read.members.values()].flat());
    const made = new Map<string, number>();
    for (const node of nodes) {
      const cluster = clusterOf?.get(node);
      if (cluster !== undefined) {
        made.set(cluster, (made.get(cluster) ?? 0) + 1);
      }
    }
    return [...made].sort(([, a], [, b]) => b - a);
  }, [read.members, clusterOf]);
  return (
    <div class="legends">
      <div class="segments" role="group" aria-label="Colours of the nodes">
        {["cluster", "state"].map((key) => (
          <button key={key} type="button" aria-pressed={by === key} onClick={() => setQuery({ by: key === "cluster" ? null : key })}>
            by {key}
          </button>
        ))}
      </div>
      <ul class="legend">
        {by === "cluster" &&
          counts.map(([name, number]) => (
            <li key={name}>
              <span class="swatch" style={{ background: colours.categories[categories.get(name) ?? 0] }} /> {name} <strong>{count(number)}</strong>
            </li>
          ))}
        <li>
          <span class="swatch" style={{ background: colours.of["switch-leaf"] }} /> switch
        </li>
        <li>
          <span class="swatch round" /> fault
        </li>
      </ul>
      {read.done < read.of && (
        <span class="dim small" role="status">
          Nodes of {count(read.done)} of {plural(read.of, "unit")} read
        </span>
      )}
    </div>
  );
}

function CellTip({ cell, rows, clusterOf, faulty, isCompared }: {
  cell: Cell;
  rows: ReadonlyMap<string, Row>;
  clusterOf: ClusterOf | undefined;
  faulty: ReadonlyMap<string, number>;
  isCompared: boolean;
}) {
  const { of, name } = cell;
  if (of === undefined) {
    const row = rows.get(name);
    return (
      <>
        <p>
          <strong class="name">{name || "node"}</strong> <span>{name === "" ? "not read yet" : (row?.state ?? "not enrolled")}</span>
        </p>
        <p class="dim">{[clusterOf?.get(name) ?? "no cluster", row?.customer].filter(Boolean).join(", ")}</p>
      </>
    );
  }
  const faults = faulty.get(name) ?? 0;
  const stand = [of.pod ? `pod ${of.pod}` : "", of.scalableUnit ? `su ${of.scalableUnit}` : "", of.rail === undefined ? "" : `rail ${of.rail}`, of.rack ? `rack ${of.rack}` : ""];
  return (
    <>
      <p>
        <strong class="name">{name}</strong> <span>{of.level}</span>
      </p>
      <p class="dim">{stand.filter(Boolean).join(", ")}</p>
      <p class="dim">
        {of.downCables ? `${plural(of.downCables, "cable")} to nodes, ` : ""}
        {plural(of.upCables ?? 0, "cable")} to switches; {of.ports} ports {of.speed}
      </p>
      <p class={faults > 0 ? "bad-text" : "dim"}>{isCompared ? (faults > 0 ? plural(faults, "fault") : "no fault is known") : "state of the cables unknown"}</p>
    </>
  );
}
