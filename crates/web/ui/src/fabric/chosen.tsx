import type { ComponentChildren } from "preact";
import type { FabricFault, TopologyBundle, TopologySwitch } from "../api";
import { short } from "../names";
import { Facts } from "../parts/panel";
import { Icon } from "../parts/icon";
import { Loading, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { Ago, Dash, NodeLink } from "../parts/text";
import { link } from "../router";
import { count } from "../units";
import type { Called } from "../use-call";
import { devicesOf } from "./model";

const SHOWN_LABELS = 4;

interface Props {
  of: TopologySwitch;
  bundles: Called<TopologyBundle[]>;
  faults: FabricFault[];
  choose(name: string): void;
}

/** One switch with its cables. */
export function ChosenSwitch({ of, bundles, faults, choose }: Props) {
  const name = of.name ?? "";
  const own = faults.filter((fault) => devicesOf(fault).includes(name));
  const broken = new Set(own.flatMap(({ cables = [] }) => cables));
  const facts: [string, ComponentChildren][] = [
    ["level", of.level || "unknown"],
    ["pod", of.pod || <Dash />],
    ["unit", of.scalableUnit ? `su ${of.scalableUnit}` : <Dash />],
    ["rail", of.rail ?? (of.level === "leaf" ? "all rails" : <Dash />)],
    ["rack", of.rack ? <a href={link("/racks", { q: of.rack })}>{of.rack}</a> : "unknown"],
    ["ports", `${of.ports ?? 0} ${of.speed ?? ""}, ${(of.ports ?? 0) - (of.downCables ?? 0) - (of.upCables ?? 0)} without a cable`],
    ["cables", `${of.downCables ?? 0} to nodes, ${of.upCables ?? 0} to switches`],
  ];
  return (
    <div class="switches">
      <div class="switches-head">
        <h2 class="name">{name}</h2>
        <button type="button" class="icon-button" aria-label="Show all switches" onClick={() => choose("")}>
          <Icon name="close" />
        </button>
      </div>
      <div class="chosen" tabIndex={0} role="group" aria-label={`Cables of ${name}`}>
        <Facts rows={facts} />
        {own.map((fault) => (
          <p key={fault.id} class="node-note">
            <Glyph tone="bad" />
            <span>
              {fault.text}, since <Ago time={fault.since} bare />
            </span>
          </p>
        ))}
        <Problem error={bundles.error} doing={`read the cables of ${name}`} retry={bundles.reload} />
        {bundles.data === undefined && bundles.error === null && <Loading what="the cables" />}
        {bundles.data && <Cables bundles={bundles.data} broken={broken} choose={choose} />}
      </div>
    </div>
  );
}

function Cables({ bundles, broken, choose }: { bundles: TopologyBundle[]; broken: Set<string>; choose(name: string): void }) {
  return (
    <table class="table cables">
      <caption class="sr">Cables by their other ends</caption>
      <thead>
        <tr>
          <th scope="col">to</th>
          <th scope="col" class="number">
            cables
          </th>
          <th scope="col">labels</th>
        </tr>
      </thead>
      <tbody>
        {bundles.map(({ b = "", cables = 0, labels = [] }) => (
          <tr key={b}>
            <td>
              {b.startsWith("nodes/") ? (
                <NodeLink id={short("nodes", b)} />
              ) : (
                <button type="button" class="link-button name" onClick={() => choose(b)}>
                  {b}
                </button>
              )}
            </td>
            <td class="number">{count(cables)}</td>
            <td class="small">
              <Labels labels={labels} broken={broken} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Broken cables first. */
function Labels({ labels, broken }: { labels: string[]; broken: Set<string> }) {
  const sorted = [...labels].sort((a, b) => Number(broken.has(b)) - Number(broken.has(a)));
  const more = sorted.length - SHOWN_LABELS;
  return (
    <span title={sorted.join(", ")}>
      {sorted.slice(0, SHOWN_LABELS).map((label, index) => (
        <span key={label}>
          {index > 0 && ", "}
          <span class={broken.has(label) ? "bad-text" : undefined}>{label}</span>
        </span>
      ))}
      {more > 0 && ` and ${more} more`}
    </span>
  );
}
