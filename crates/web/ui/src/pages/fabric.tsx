import { useMemo } from "preact/hooks";
import type { TopologySwitch } from "../api";
import { FabricView } from "../fabric/fabric-view";
import { BreachesPanel, FaultsPanel } from "../fabric/faults";
import { devicesOf, fabricsOf } from "../fabric/model";
import { useFabric } from "../fleet/fabric-faults";
import { NoSite } from "../hall/no-site";
import { isWithoutSite, useSwitches } from "../hall/topology";
import { AsCli, PageHead } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { location, setQuery } from "../router";
import { count } from "../units";

export function FabricPage() {
  const site = useSwitches();
  const faults = useFabric();
  const { query } = location.value;
  const switches = site.data ?? [];
  const names = useMemo(() => fabricsOf(switches), [switches]);
  const chosen = switches.find(({ name }) => name === query.get("switch"));
  const wanted = query.get("fabric") ?? chosen?.fabric ?? names[0] ?? "";
  const name = names.includes(wanted) ? wanted : (names[0] ?? "");
  const show = (fault: { id?: string; ends?: { a?: string; b?: string }[] }) => {
    const device = devicesOf(fault).find((some) => switches.some((other) => other.name === some));
    const fabric = switches.find((some) => some.name === device)?.fabric ?? name;
    setQuery({ fault: fault.id ?? null, fabric: fabric === names[0] ? null : fabric, switch: null }, { replace: false });
    document.querySelector(".fabric-picture")?.scrollIntoView({ block: "center" });
  };
  return (
    <>
      <PageHead title="Fabric" side={names.length > 1 && <Fabrics names={names} name={name} />}>
        {site.data ? summary(switches, names) : site.error ? "Unknown number of switches" : "Reading the switches"}
      </PageHead>
      {isWithoutSite(site.error) ? <NoSite what="the switches and cables" /> : <Problem error={site.error} doing="read the switches" retry={site.reload} />}
      {site.data === undefined && site.error === null && <Loading what="the switches" lines={8} />}
      {site.data !== undefined && switches.length === 0 && <NoSwitches />}
      {switches.length > 0 && <FabricView key={name} name={name} all={switches} faults={faults.data?.faults ?? []} isCompared={faults.data?.checkTime !== undefined} chosen={chosen} />}
      <FaultsPanel fabric={faults} show={show} />
      <BreachesPanel fabric={faults} />
      <AsCli commands={["rackwright fabric faults", "rackwright fabric show DUMP", "rackwright site show"]} />
    </>
  );
}

const LEVELS: [string, string, string][] = [
  ["leaf", "leaf", "leaves"],
  ["spine", "spine", "spines"],
  ["core", "core", "cores"],
];

function summary(switches: TopologySwitch[], names: string[]): string {
  const parts = LEVELS.flatMap(([level, one, many]) => {
    const number = switches.filter((some) => some.level === level).length;
    return number === 0 ? [] : [`${count(number)} ${number === 1 ? one : many}`];
  });
  const of = names.length > 1 ? ` in ${names.length} fabrics` : "";
  return `${parts.join(", ")}${of}, as in the site file`;
}

function Fabrics({ names, name }: { names: string[]; name: string }) {
  return (
    <div class="segments" role="group" aria-label="Fabric">
      {names.map((some) => (
        <button key={some} type="button" aria-pressed={some === name} onClick={() => setQuery({ fabric: some === names[0] ? null : some, switch: null, fault: null }, { replace: false })}>
          {some || "without a name"}
        </button>
      ))}
    </div>
  );
}

function NoSwitches() {
  return (
    <Empty title="The site file has no switches">
      <p>
        <code>rackwright site import fabric DUMP</code> writes switches and cables from the output of <code>ibnetdiscover</code>; <code>rackwright site apply FILE</code> applies them.
      </p>
    </Empty>
  );
}
