import { useMemo, useState } from "preact/hooks";
import { useAlarms } from "../fleet/alarms";
import { useNodes } from "../fleet/store";
import { categoriesOf } from "../hall/colours";
import { useClusterOf } from "../hall/clusters";
import { NoSite } from "../hall/no-site";
import { usePdus } from "../hall/pdus";
import { isWithoutSite, useRacks } from "../hall/topology";
import { AsCli, PageHead } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { RackLegend } from "../racks/legend";
import { NOWHERE, SIZES, usualSize, type Spot } from "../racks/layout";
import { alarmsOf, BY, categoryOf, mostWatts, wordOf, type By, type Known } from "../racks/look";
import { narrowed, nodesIn, racksOf, roomsOf, type Rack } from "../racks/model";
import { RackPicture } from "../racks/picture";
import { RackTable } from "../racks/table";
import { RackToolbar } from "../racks/toolbar";
import { location } from "../router";
import { count, plural } from "../units";

export function RacksPage() {
  const site = useRacks();
  const all = useMemo(() => racksOf(site.data ?? []), [site.data]);
  return (
    <div class="racks-page">
      <PageHead title="Racks">{site.data ? summary(all) : site.error ? "Unknown number of racks" : "Reading the racks"}</PageHead>
      {isWithoutSite(site.error) ? <NoSite what="the racks" /> : <Problem error={site.error} doing="read the racks" retry={site.reload} />}
      {site.data === undefined && site.error === null && <Loading what="the racks" lines={8} />}
      {site.data !== undefined && all.length === 0 && <Empty title="The site file has no racks" />}
      {all.length > 0 && <Hall all={all} />}
      <AsCli commands={["rackwright site show", "rackwright node list", "rackwright power report --level rack-pdu"]} />
    </div>
  );
}

function summary(racks: Rack[]): string {
  const rooms = roomsOf(racks).length;
  return `${plural(racks.length, "rack")} in ${plural(rooms, "room")} with ${plural(nodesIn(racks).length, "node")} of the site file`;
}

function Hall({ all }: { all: Rack[] }) {
  const { query } = location.value;
  const by = BY.find(([key]) => key === query.get("by"))?.[0] ?? "state";
  const room = query.get("room") ?? "";
  const text = query.get("q") ?? "";
  const racks = useMemo(() => narrowed(all, room, text), [all, room, text]);
  const size = SIZES.find((some) => some === query.get("size")) ?? usualSize(racks.length, window.innerWidth);
  const { known, version, problems } = useKnown(all, by);
  const [spot, setSpot] = useState<Spot>(NOWHERE);
  return (
    <>
      <RackToolbar rooms={roomsOf(all)} room={room} by={by} size={size} text={text} />
      {problems}
      <RackLegend known={known} racks={racks} />
      {racks.length === 0 ? (
        <Empty title="No rack matches">
          <p>
            <a href="/racks">Show all racks</a>
          </p>
        </Empty>
      ) : (
        <div class="racks-both">
          <RackPicture key={`${room} ${text}`} racks={racks} known={known} version={version} size={size} label={labelOf(racks, by)} spot={spot} setSpot={setSpot} />
          <RackTable racks={racks} known={known} spot={spot} />
        </div>
      )}
      <Sr racks={racks} known={known} spot={spot} />
      <Strangers all={all} known={known} />
    </>
  );
}

function labelOf(racks: Rack[], by: By): string {
  return `${plural(racks.length, "rack")} in elevation, by ${by}. Arrow keys move between machines, Enter opens one. The table beside has the same content.`;
}

/** Everything that the picture shows of the machines. */
function useKnown(all: Rack[], by: By) {
  const store = useNodes("");
  const version = store.version.value;
  const pdus = usePdus(true);
  const alarms = useAlarms();
  const clusters = useClusterOf(by === "cluster");
  const rows = store.rows;
  const ofAlarms = useMemo(() => alarmsOf(alarms.data?.alarms ?? []), [alarms.data]);
  const most = useMemo(() => mostWatts(all, pdus.data), [all, pdus.data]);
  const known = useMemo<Known>(() => {
    const made: Known = { by, rows, pdus: pdus.data, clusterOf: clusters.data, categories: new Map(), alarms: ofAlarms, most };
    if (by === "customer") {
      made.categories = categoriesOf([...rows.values()].map(({ customer }) => customer).filter(Boolean));
    } else if (by === "cluster") {
      made.categories = categoriesOf([...rows.keys()].map((name) => categoryOf(made, name)).filter(Boolean));
    }
    return made;
  }, [by, rows, version, pdus.data, clusters.data, ofAlarms, most]);
  const problems = (
    <>
      <Problem error={store.error.value} doing="watch the nodes" retry={() => store.retry()} />
      <Problem error={pdus.error} doing="read the power of the racks" retry={pdus.reload} />
      <Problem error={clusters.error} doing="read the clusters" retry={clusters.reload} />
      <Problem error={alarms.error} doing="read the alarms" retry={alarms.reload} />
    </>
  );
  return { known, version, problems };
}

/** What the keys have reached, for screen readers. */
function Sr({ racks, known, spot }: { racks: Rack[]; known: Known; spot: Spot }) {
  const rack = racks[spot.rack];
  const machine = rack?.machines[spot.machine];
  return (
    <span class="sr" role="status">
      {rack && machine ? `${rack.name}, unit ${machine.unit || "unknown"}, ${machine.name}, ${wordOf(known, machine)}` : ""}
    </span>
  );
}

/** Enrolled nodes that the site file does not have. */
function Strangers({ all, known }: { all: Rack[]; known: Known }) {
  const placed = useMemo(() => new Set(nodesIn(all)), [all]);
  const strangers = [...known.rows.keys()].filter((name) => !placed.has(name)).length;
  return strangers === 0 ? null : <p class="dim">{count(strangers)} enrolled {strangers === 1 ? "node is" : "nodes are"} in no rack of the site file.</p>;
}
