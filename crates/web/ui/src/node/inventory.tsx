import type { ComponentChildren } from "preact";
import type { Inventory } from "../api";
import { Facts, Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Copy, Dash } from "../parts/text";
import { bytes, memory, plural } from "../units";
import { eraseMethod } from "../words";
import type { NodeView } from "./view";

export function InventoryView({ of: { id, inventory } }: { of: NodeView }) {
  if (inventory === undefined) {
    return (
      <Empty title={`The inventory of ${id} is not known yet`}>
        <p>An inspection reads it: the overview shows what the node waits for.</p>
      </Empty>
    );
  }
  return (
    <>
      <div class="columns-2">
        <System inventory={inventory} />
        <Gpus inventory={inventory} />
      </div>
      <Drives inventory={inventory} />
      <Nics inventory={inventory} />
      <Hcas inventory={inventory} />
      <div class="columns-2">
        <FirmwareVersions inventory={inventory} />
        <Modules inventory={inventory} />
      </div>
    </>
  );
}

function words(...parts: (string | undefined)[]): string {
  return parts.filter(Boolean).join(" ") || "unknown";
}

function System({ inventory }: { inventory: Inventory }) {
  const { dmi = {}, cpus = [], tpm } = inventory;
  const models = new Map<string, [number, number, number]>();
  for (const { model = "unknown", cores = 0, threads = 0 } of cpus) {
    const [sockets, allCores, allThreads] = models.get(model) ?? [0, 0, 0];
    models.set(model, [sockets + 1, allCores + cores, allThreads + threads]);
  }
  const processors = [...models].map(
    ([model, [sockets, cores, threads]]) => `${sockets} × ${model} (${cores} cores, ${threads} threads)`,
  );
  const rows: [string, ComponentChildren][] = [
    ["system", words(dmi.systemVendor, dmi.productName)],
    ["serial number", dmi.serialNumber ? <Copy text={dmi.serialNumber} /> : "unknown"],
    ["UUID", dmi.uuid ? <Copy text={dmi.uuid} /> : "unknown"],
    ["BIOS", words(dmi.biosVendor, dmi.biosVersion, dmi.biosDate)],
    ["boots by", `${inventory.bootMode || "unknown"}${inventory.secureBoot ? ", Secure Boot on" : ""}`],
    ["kernel", words(inventory.kernelRelease, inventory.architecture)],
    ["CPU", processors.length > 0 ? processors.join("; ") : "unknown"],
    ["memory", memory(inventory.memoryBytes)],
    ["TPM", tpm?.present ? `${tpm.majorVersion ?? "?"}.x ${tpm.manufacturer ?? ""}` : "none"],
    ["PCI", plural(inventory.pciDevices?.length ?? 0, "device")],
  ];
  return (
    <Panel title="System">
      <Facts rows={rows} />
    </Panel>
  );
}

function Gpus({ inventory: { gpus = [] } }: { inventory: Inventory }) {
  return (
    <Panel title="GPUs" side={plural(gpus.length, "GPU")} isFlush>
      {gpus.length === 0 ? (
        <Empty title="The inventory has no GPU" />
      ) : (
        <Table
          caption="GPUs"
          rows={gpus}
          keyOf={(gpu) => gpu.pciAddress ?? ""}
          columns={[
            {
              title: "model",
              cell: ({ model, vendorId = 0, deviceId = 0 }) =>
                model || `unknown (${vendorId.toString(16)}:${deviceId.toString(16)})`,
            },
            { title: "PCI", cell: ({ pciAddress }) => <code>{pciAddress}</code> },
          ]}
        />
      )}
    </Panel>
  );
}

function Drives({ inventory: { drives = [], excludedDevices = [] } }: { inventory: Inventory }) {
  return (
    <Panel title="Drives" side={plural(drives.length, "drive")} isFlush>
      {drives.length === 0 ? (
        <Empty title="The inventory has no drive" />
      ) : (
        <Table
          caption="Drives"
          rows={drives}
          keyOf={(drive) => drive.name ?? ""}
          columns={[
            { title: "name", cell: ({ name }) => <code>{name}</code> },
            { title: "size", isNumber: true, cell: ({ sizeBytes }) => bytes(sizeBytes) },
            { title: "kind", cell: ({ transport }) => transport },
            { title: "model", cell: ({ model }) => model || "unknown" },
            { title: "serial", cell: ({ serialNumber }) => (serialNumber ? <Copy text={serialNumber} /> : "unknown") },
            { title: "firmware", isWide: true, cell: ({ firmwareVersion }) => firmwareVersion || "unknown" },
            { title: "strongest erase", isWide: true, cell: ({ eraseMethods }) => eraseMethod(eraseMethods?.[0]) },
          ]}
        />
      )}
      {excludedDevices.map(({ name, reason }) => (
        <p key={name} class="note dim">
          <code>{name}</code> is not erased: {reason}
        </p>
      ))}
    </Panel>
  );
}

function link(isUp: boolean | undefined) {
  return (
    <StateBadge state={isUp ? { word: "up", tone: "good", key: "good" } : { word: "down", tone: "dim", key: "dim" }} />
  );
}

function Nics({ inventory: { nics = [] } }: { inventory: Inventory }) {
  return (
    <Panel title="Network" side={plural(nics.length, "port")} isFlush>
      {nics.length === 0 ? (
        <Empty title="The inventory has no network card" />
      ) : (
        <Table
          caption="Network cards"
          rows={nics}
          keyOf={(nic) => nic.name ?? ""}
          columns={[
            { title: "name", cell: ({ name }) => <code>{name}</code> },
            { title: "MAC", cell: ({ mac }) => (mac ? <Copy text={mac} /> : "unknown") },
            { title: "link", cell: ({ linkUp }) => link(linkUp) },
            { title: "speed", isNumber: true, cell: ({ speedMbps }) => (speedMbps ? `${speedMbps} Mb/s` : "unknown") },
            { title: "driver", isWide: true, cell: ({ driver }) => driver },
            { title: "PCI", isWide: true, cell: ({ pciAddress }) => <code>{pciAddress}</code> },
            { title: "switch port", cell: ({ neighbour }) => neighbour || <Dash /> },
            { title: "addresses", isWide: true, cell: ({ addresses }) => addresses?.join(" ") || <Dash /> },
          ]}
        />
      )}
    </Panel>
  );
}

function Hcas({ inventory: { hcas = [] } }: { inventory: Inventory }) {
  const ports = hcas.flatMap((hca) => (hca.ports ?? []).map((port) => ({ hca, port })));
  return (
    <Panel title="InfiniBand" side={plural(ports.length, "port")} isFlush>
      {ports.length === 0 ? (
        <Empty title="The inventory has no HCA" />
      ) : (
        <Table
          caption="HCA ports"
          rows={ports}
          keyOf={({ hca, port }) => `${hca.name}/${port.number}`}
          columns={[
            { title: "port", cell: ({ hca, port }) => <code>{`${hca.name}/${port.number}`}</code> },
            { title: "GUID", cell: ({ port }) => (port.portGuid ? <Copy text={port.portGuid} /> : "unknown") },
            {
              title: "state",
              cell: ({ port }) => (
                <StateBadge
                  state={
                    port.state === "ACTIVE"
                      ? { word: "active", tone: "good", key: "good" }
                      : { word: (port.state || "unknown").toLowerCase(), tone: "dim", key: "dim" }
                  }
                />
              ),
            },
            { title: "rate", cell: ({ port }) => port.rate || "unknown" },
            { title: "LID", isNumber: true, isWide: true, cell: ({ port }) => port.lid || <Dash /> },
            { title: "firmware", isWide: true, cell: ({ hca }) => hca.firmwareVersion || "unknown" },
            { title: "board", isWide: true, cell: ({ hca }) => hca.boardId || "unknown" },
          ]}
        />
      )}
    </Panel>
  );
}

function FirmwareVersions({ inventory: { firmwareVersions = {} } }: { inventory: Inventory }) {
  const rows = Object.entries(firmwareVersions).sort(([a], [b]) => a.localeCompare(b));
  return (
    <Panel title="Firmware in the inventory" side={plural(rows.length, "component")}>
      {rows.length === 0 ? <Empty title="No firmware version is known" /> : <Facts rows={rows} />}
    </Panel>
  );
}

function Modules({ inventory: { memoryModules = [] } }: { inventory: Inventory }) {
  const kinds = new Map<string, number>();
  for (const { sizeBytes, manufacturer, partNumber, speedMts } of memoryModules) {
    const kind = `${memory(sizeBytes)} ${words(manufacturer, partNumber)}${speedMts ? `, ${speedMts} MT/s` : ""}`;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  return (
    <Panel title="Memory modules" side={plural(memoryModules.length, "module")}>
      {kinds.size === 0 ? (
        <Empty title="No memory module is known" />
      ) : (
        <ul>
          {[...kinds].map(([kind, number]) => (
            <li key={kind}>
              {number} × {kind}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
