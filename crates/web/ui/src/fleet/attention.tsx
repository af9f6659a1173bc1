import type { ComponentChildren } from "preact";
import type { ListAlarmsResponse, ListFabricFaultsResponse } from "../api";
import { Panel } from "../parts/panel";
import { Empty, Problem } from "../parts/problem";
import { Prose } from "../parts/prose";
import { Glyph } from "../parts/state";
import { link } from "../router";
import { count, plural } from "../units";
import { useCall, type Called } from "../use-call";
import type { Tone } from "../words";
import type { Counts } from "./counts";

interface Item {
  key: string;
  tone: Tone;
  figure: number;
  text: ComponentChildren;
  href?: string;
}

function nodeItems({ states, healths, late }: Counts): Item[] {
  const health = (word: string, text: string): Item => ({
    key: word,
    tone: "bad",
    figure: healths.get(word) ?? 0,
    text,
    href: link("/nodes", { health: word }),
  });
  const state = (word: "failed" | "quarantined" | "maintenance", tone: Tone, text: string): Item => ({
    key: word,
    tone,
    figure: states.get(word) ?? 0,
    text,
    href: link("/nodes", { filter: `state = ${word}` }),
  });
  return [
    state("failed", "bad", "failed"),
    state("quarantined", "bad", "quarantined"),
    health("doubted", "with a doubted record"),
    health("BMC silent", "with a silent BMC"),
    health("login refused", "whose BMC refuses the login"),
    {
      key: "late",
      tone: "bad",
      figure: late,
      text: "past the deadline of their state",
      href: link("/nodes", { late: "yes" }),
    },
    state("maintenance", "dim", "in maintenance"),
    { ...health("unknown", "of unknown health"), tone: "dim" },
  ];
}

function siteItems(alarms: ListAlarmsResponse | undefined, fabric: ListFabricFaultsResponse | undefined): Item[] {
  const of = (severity: string) => (alarms?.alarms ?? []).filter((alarm) => alarm.severity === severity).length;
  const breaches = (fabric?.breaches ?? []).filter((breach) => breach.endTime === undefined).length;
  const faults = (fabric?.faults ?? []).length + (fabric?.more ?? 0);
  return [
    {
      key: "breaches",
      tone: "bad",
      figure: breaches,
      text: breaches === 1 ? "open breach of isolation" : "open breaches of isolation",
      href: "#fabric",
    },
    {
      key: "critical",
      tone: "bad",
      figure: of("critical"),
      text: of("critical") === 1 ? "critical alarm" : "critical alarms",
      href: "#alarms",
    },
    {
      key: "warning",
      tone: "busy",
      figure: of("warning"),
      text: of("warning") === 1 ? "warning of power or cooling" : "warnings of power and cooling",
      href: "#alarms",
    },
    {
      key: "faults",
      tone: "busy",
      figure: faults,
      text: faults === 1 ? "fault of the fabric" : "faults of the fabric",
      href: "#fabric",
    },
  ];
}

/** The subjects that need attention, the worst first. */
export function Attention({
  counts,
  isKnown,
  alarms,
  fabric,
}: {
  counts: Counts;
  isKnown: boolean;
  alarms: Called<ListAlarmsResponse>;
  fabric: Called<ListFabricFaultsResponse>;
}) {
  const control = useCall("ControlService/GetControl", {}, { everyMs: 60_000 });
  const rank: Tone[] = ["bad", "busy", "good", "dim"];
  const items = [...siteItems(alarms.data, fabric.data), ...nodeItems(counts)]
    .filter(({ figure }) => figure > 0)
    .sort((a, b) => rank.indexOf(a.tone) - rank.indexOf(b.tone));
  const warnings = control.data?.warnings ?? [];
  const isCalm = isKnown && items.length === 0 && warnings.length === 0;
  return (
    <Panel title="Needs attention" side={items.length > 0 ? plural(items.length, "subject") : undefined}>
      <Problem error={control.error} doing="read the state of the control plane" />
      {isCalm && <Empty title="Nothing needs attention at the moment" />}
      <ul class="attention">
        {items.map(({ key, tone, figure, text, href }) => (
          <li key={key} data-tone={tone}>
            <Glyph tone={tone} />
            <a href={href}>
              <strong>{count(figure)}</strong> {text}
            </a>
          </li>
        ))}
        {warnings.map((warning) => (
          <li key={warning} data-tone="busy">
            <Glyph tone="busy" />
            <span>
              <Prose text={warning} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
