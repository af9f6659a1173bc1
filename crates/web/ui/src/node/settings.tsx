import type { NodeFirmware, NodeSettings } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, Dash } from "../parts/text";
import { useCall } from "../use-call";
import { firmwareVerdict, settingStanding } from "../words";
import type { NodeView } from "./view";

/** Firmware settings and versions against those that the SKU wants. */
export function SettingsView({ of: { id } }: { of: NodeView }) {
  const name = `nodes/${id}`;
  const settings = useCall("SettingsService/GetNodeSettings", { name }, { everyMs: 30_000 });
  const firmware = useCall("FirmwareService/GetNodeFirmware", { name }, { everyMs: 30_000 });
  return (
    <div class="stack">
      <Panel title="Firmware settings" isFlush>
        <Problem error={settings.error} doing="read the settings" retry={settings.reload} />
        {settings.data === undefined && settings.error === null && <Loading what="the settings" />}
        {settings.data && <Settings settings={settings.data} />}
      </Panel>
      <Panel title="Firmware" isFlush>
        <Problem error={firmware.error} doing="read the firmware" retry={firmware.reload} />
        {firmware.data === undefined && firmware.error === null && <Loading what="the firmware" />}
        {firmware.data && <Firmware firmware={firmware.data} />}
      </Panel>
    </div>
  );
}

function Settings({ settings: { settings = [], sku, readTime, verifyTime, driftTime } }: { settings: NodeSettings }) {
  if (settings.length === 0) {
    return (
      <Empty
        title={
          sku
            ? `SKU ${short("skus", sku)} wants no firmware settings`
            : "The site does not have the node, so no firmware settings are wanted"
        }
      />
    );
  }
  return (
    <>
      <p class="note dim">
        Read {readTime ? <Ago time={readTime} /> : "never"}; verified after a start{" "}
        {verifyTime ? <Ago time={verifyTime} /> : "never"}
        {driftTime && (
          <span class="bad-text">
            ; differs since <Ago time={driftTime} />
          </span>
        )}
      </p>
      <Table
        caption="Firmware settings"
        rows={settings}
        keyOf={(setting) => setting.name ?? ""}
        columns={[
          { title: "setting", cell: ({ name }) => <code>{name}</code> },
          { title: "wanted", cell: ({ wanted }) => wanted },
          { title: "current", cell: ({ current }) => current ?? "unknown" },
          { title: "after start", isWide: true, cell: ({ pending }) => pending ?? <Dash /> },
          { title: "standing", cell: ({ standing }) => <StateBadge state={settingStanding(standing)} /> },
        ]}
      />
    </>
  );
}

function Firmware({ firmware: { rows = [], inventory = [], seenTime, underWay } }: { firmware: NodeFirmware }) {
  return (
    <>
      <p class="note dim">
        {seenTime ? (
          <>
            The BMC was read <Ago time={seenTime} />.
          </>
        ) : (
          "The BMC was never read."
        )}{" "}
        {underWay && `Under way: ${underWay}`}
      </p>
      {rows.length === 0 && <Empty title="The SKU wants no firmware version" />}
      {rows.length > 0 && (
        <Table
          caption="Wanted firmware"
          rows={rows}
          keyOf={(row, index) => `${row.component} ${index}`}
          columns={[
            { title: "component", cell: ({ component }) => component },
            { title: "installed", cell: ({ installed }) => installed || "unknown" },
            { title: "wanted", cell: ({ wanted }) => wanted },
            { title: "verdict", cell: (row) => <StateBadge state={firmwareVerdict(row.verdict)} /> },
            { title: "id", isWide: true, cell: ({ id }) => id || <Dash /> },
          ]}
        />
      )}
      {inventory.length > 0 && (
        <Table
          caption="Firmware by the BMC"
          rows={inventory}
          keyOf={(entry, index) => `${entry.id} ${index}`}
          columns={[
            { title: "id", cell: ({ id }) => <code>{id}</code> },
            { title: "name", cell: ({ title }) => title || <Dash /> },
            { title: "version", cell: ({ version }) => version || "unknown" },
            {
              title: "updateable",
              isWide: true,
              cell: ({ updateable }) => (updateable === undefined ? "unknown" : updateable ? "yes" : "no"),
            },
          ]}
        />
      )}
    </>
  );
}
