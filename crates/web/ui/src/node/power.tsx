import type { ComponentChildren } from "preact";
import { Facts, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Glyph } from "../parts/state";
import { count } from "../units";
import { useCall } from "../use-call";

function watts(value: number | undefined): string {
  return value === undefined ? "unknown" : `${count(Math.round(value))} W`;
}

/** Power of the node, and what the loss of a feed would do. */
export function PowerPanel({ name }: { name: string }) {
  // The SKU by the site tells whether the site has the node: ExplainPower refuses other nodes.
  const settings = useCall("SettingsService/GetNodeSettings", { name });
  const isInSite = Boolean(settings.data?.sku);
  const { data, error, reload } = useCall(
    "PowerService/ExplainPower",
    { name },
    { everyMs: 30_000, isWanted: isInSite },
  );
  const rows: [string, ComponentChildren][] = [
    ["measured", watts(data?.measuredWatts)],
    ["reserved", watts(data?.reservedWatts)],
    ...(data?.losses ?? []).map((loss): [string, ComponentChildren] => [
      `feed ${loss.feed} lost`,
      <span class="badge" data-tone={loss.survives ? "good" : "bad"}>
        <Glyph tone={loss.survives ? "good" : "bad"} />
        <span>
          {loss.survives
            ? `lives on ${loss.live ?? 0} power supplies with ${watts(loss.liveWatts ?? 0)}`
            : `fails: ${loss.live ?? 0} power supplies give ${watts(loss.liveWatts ?? 0)}`}
        </span>
      </span>,
    ]),
  ];
  return (
    <Panel title="Electric power">
      <Problem error={settings.error ?? error} doing="read the power" retry={reload} />
      {settings.data && !isInSite && <Empty title="Unknown: the site file does not have the node" />}
      {isInSite && data === undefined && error === null && <Loading what="the power" />}
      {data && <Facts rows={rows} />}
      {data && (data.losses ?? []).length === 0 && (
        <p class="dim">The site file does not describe the node's power supplies.</p>
      )}
      {(data?.alarms ?? []).map((alarm) => (
        <p key={alarm.name} class="node-note">
          <Glyph tone={alarm.severity === "critical" ? "bad" : "busy"} /> {alarm.message}{" "}
          <span class="dim">{alarm.advice}</span>
        </p>
      ))}
    </Panel>
  );
}
