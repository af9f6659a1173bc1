import type { Deployment, PowerAction } from "../api";
import { change } from "../client";
import type { Row } from "../fleet/row";
import { shellWord, short } from "../names";
import type { NodeStateWord } from "../words";
import type { Values, Verb } from "./verb";

const nameOf = (row: Row) => `nodes/${row.id}`;
const nothing = () => "";
const drives = () => "all data on the drives";

const NO_CLAIM = "without a claim";
const SILENT = "out of reach, because its BMC is silent";

/** The state as the end of "the node is ...". */
function being(state: NodeStateWord): string {
  return state === "maintenance" ? "in maintenance" : state;
}

/** Refuses other states. */
function only(states: NodeStateWord[], more: (row: Row) => string = nothing): (row: Row) => string {
  return (row) => (states.includes(row.state) ? more(row) : being(row.state));
}

function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

function deployment(values: Values): Deployment {
  return {
    image: values.image,
    hostname: values.hostname.trim(),
    sshAuthorizedKeys: lines(values.keys),
    userData: values.userData,
    verifyWholeDisk: values.verifyDisk,
    customer: values.customer.trim(),
  };
}

function words(...parts: (string | false)[]): string {
  return parts.filter(Boolean).join(" ");
}

function imageWords(values: Values): string {
  const image = short("images", values.image).replace("/versions/", "@") || "IMAGE";
  return words(
    `--image ${shellWord(image)}`,
    values.customer !== "" && `--customer ${shellWord(values.customer)}`,
    values.hostname !== "" && `--hostname ${shellWord(values.hostname)}`,
    lines(values.keys).length > 0 && "--ssh-key FILE",
    values.userData !== "" && "--user-data FILE",
    values.verifyDisk && "--verify-disk",
  );
}

function power(id: string, label: string, action: PowerAction, effect: string, isCut: boolean): Verb {
  const arg = id.replace("power-", "");
  return {
    id,
    label,
    effect,
    loses: (row) => (isCut && row.claimed ? `the running work${row.customer ? ` of ${row.customer}` : ""}` : ""),
    cannot: (row) => (row.health === "BMC silent" ? SILENT : ""),
    fields: [],
    required: [],
    send: (row) => change("NodeService/SetNodePower", { name: nameOf(row), action }),
    cli: (ids) => ids.map((node) => `rackwright node power ${node} ${arg}`),
    isBulk: true,
  };
}

const DEPLOY: Verb = {
  id: "deploy",
  label: "Deploy",
  effect: "Each node is claimed, gets the image, is checked, and is handed over.",
  loses: nothing,
  cannot: only(["available"], (row) => (row.claimed ? "claimed already" : "")),
  fields: ["image", "customer", "hostname", "keys", "userData", "verifyDisk"],
  required: ["image"],
  send: (row, values) => change("NodeService/DeployNode", { name: nameOf(row), deployment: deployment(values) }),
  cli: (ids, values) => [`rackwright node deploy ${ids.join(" ")} ${imageWords(values)}`],
  isBulk: true,
};

const REIMAGE: Verb = {
  id: "reimage",
  label: "Reimage",
  effect:
    "Another image is written, then the node is checked and handed over again. Nodes of a cluster are reimaged with their cluster.",
  loses: drives,
  cannot: only(["active", "failed"], (row) => (row.claimed ? "" : NO_CLAIM)),
  fields: ["image", "hostname", "keys", "userData", "verifyDisk"],
  required: ["image"],
  send: (row, values) =>
    change("NodeService/ReimageNode", { name: nameOf(row), deployment: deployment({ ...values, customer: "" }) }),
  cli: (ids, values) => [`rackwright node reimage ${ids.join(" ")} ${imageWords({ ...values, customer: "" })}`],
  isForCustomers: true,
  isBulk: true,
};

const RELEASE: Verb = {
  id: "release",
  label: "Release",
  effect: "The claim ends, every drive is erased, and the node becomes available.",
  loses: drives,
  cannot: only(["available", "allocated", "imaging", "rebooting", "validating", "active", "failed"], (row) =>
    row.claimed ? "" : NO_CLAIM,
  ),
  fields: [],
  required: [],
  send: (row) => change("NodeService/ReleaseNode", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node release ${ids.join(" ")}`],
  isBulk: true,
};

const HOLD: Verb = {
  id: "hold",
  label: "Hold",
  effect: "The node is taken out of service. Its data stay as they are.",
  loses: nothing,
  cannot: only(["discovered", "inspecting", "available", "active", "failed"]),
  fields: ["reason"],
  required: ["reason"],
  send: (row, { reason }) => change("NodeService/HoldNode", { name: nameOf(row), reason }),
  cli: (ids, { reason }) => [`rackwright node hold ${ids.join(" ")} --reason ${shellWord(reason || "TEXT")}`],
  isBulk: true,
};

const RESUME: Verb = {
  id: "resume",
  label: "Resume",
  effect: "The hold ends: a node without a claim is inspected again, a claimed one is checked again.",
  loses: (row) => (row.releaseRequested ? "all data on the drives, because its claim ended during the hold" : ""),
  cannot: only(["maintenance"]),
  fields: [],
  required: [],
  send: (row) => change("NodeService/ResumeNode", { name: nameOf(row), confirmErase: row.releaseRequested }),
  cli: (ids) => [`rackwright node resume ${ids.join(" ")}`],
  isBulk: true,
};

const RETRY: Verb = {
  id: "retry",
  label: "Retry",
  effect: "The failed work is done again: a claimed node is imaged or checked again, a clean one is inspected again.",
  loses: nothing,
  cannot: only(["failed"]),
  fields: [],
  required: [],
  send: (row) => change("NodeService/RetryNode", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node retry ${ids.join(" ")}`],
  isBulk: true,
};

const QUARANTINE: Verb = {
  id: "quarantine",
  label: "Quarantine",
  effect: "The node is taken out of service as not trusted. The only way back is a readmit, which erases it.",
  loses: (row) =>
    row.claimed ? `the work of ${row.customer || "its holder"} on the node; a readmit erases its data` : "",
  cannot: (row) => (["quarantined", "maintenance"].includes(row.state) ? being(row.state) : ""),
  fields: ["reason"],
  required: ["reason"],
  send: (row, { reason }) => change("NodeService/QuarantineNode", { name: nameOf(row), reason }),
  cli: (ids, { reason }) => [`rackwright node quarantine ${ids.join(" ")} --reason ${shellWord(reason || "TEXT")}`],
  isBulk: true,
};

const READMIT: Verb = {
  id: "readmit",
  label: "Readmit",
  effect: "Every drive is erased, and the node returns to the pool.",
  loses: drives,
  cannot: (row) => {
    if (row.state === "available" && row.health === "doubted") {
      return "";
    }
    return only(["quarantined", "failed", "maintenance"])(row);
  },
  fields: ["acceptDrives", "acceptTpm"],
  required: [],
  send: (row, { acceptDrives, acceptTpm }) =>
    change("NodeService/ReadmitNode", {
      name: nameOf(row),
      confirmErase: true,
      acceptDrives,
      acceptTpm: acceptTpm.trim(),
    }),
  cli: (ids, { acceptDrives, acceptTpm }) => [
    words(
      `rackwright node readmit ${ids.join(" ")}`,
      acceptDrives && "--accept-drives",
      acceptTpm !== "" && `--accept-tpm ${shellWord(acceptTpm)}`,
    ),
  ],
  isBulk: true,
};

const BELIEVE: Verb = {
  id: "believe",
  label: "Believe",
  effect: "Confirms that the record of the node is right. Its claim and its data are acted on again.",
  loses: nothing,
  cannot: (row) => (row.health === "doubted" ? "" : "not doubted"),
  fields: ["reason"],
  required: ["reason"],
  send: (row, { reason }) => change("NodeService/BelieveNode", { name: nameOf(row), reason }),
  cli: (ids, { reason }) => [`rackwright node believe ${ids.join(" ")} --reason ${shellWord(reason || "TEXT")}`],
};

const AC_CYCLE: Verb = {
  id: "ac-cycle",
  label: "AC cycle",
  effect: "The power is briefly removed from the machine and its BMC, if the BMC supports this.",
  loses: (row) => (row.claimed ? `the running work${row.customer ? ` of ${row.customer}` : ""}` : ""),
  cannot: (row) => (row.health === "BMC silent" ? SILENT : ""),
  fields: ["force"],
  required: [],
  send: (row, { force }) => change("BmcService/AcCycleNode", { name: nameOf(row), force }),
  cli: (ids, { force }) => ids.map((id) => `rackwright node power ${id} ac-cycle${force ? " --force" : ""}`),
};

const FIRMWARE: Verb = {
  id: "firmware",
  label: "Update firmware",
  effect:
    "The firmware gets the versions that the SKU wants: at once while the node is free, else in its maintenance window.",
  loses: nothing,
  cannot: nothing,
  fields: [],
  required: [],
  send: (row) => change("FirmwareService/UpdateNodeFirmware", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node firmware update ${ids.join(" ")}`],
};

const SETTINGS: Verb = {
  id: "settings",
  label: "Apply settings",
  effect: "Firmware settings that differ are written. The machine is started and inspected again.",
  loses: nothing,
  cannot: (row) => (row.claimed ? "claimed" : ""),
  fields: [],
  required: [],
  send: (row) => change("SettingsService/ApplyNodeSettings", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node settings apply ${ids.join(" ")}`],
};

const ROTATE: Verb = {
  id: "bmc-password",
  label: "Change BMC password",
  effect:
    "The BMC gets a new password of the control plane. A password that the BMC refused before is tried once more.",
  loses: nothing,
  cannot: (row) => (row.health === "BMC silent" ? SILENT : ""),
  fields: [],
  required: [],
  send: (row) => change("CredentialService/RotateBmcPassword", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node bmc-password rotate ${ids.join(" ")}`],
};

const DELETE: Verb = {
  id: "delete",
  label: "Delete",
  effect: "The node leaves the management of the control plane. The machine itself is not touched.",
  loses: () => "the record of the node, with its inventory and reports",
  cannot: (row) => (row.claimed ? "claimed" : ""),
  fields: [],
  required: [],
  send: (row) => change("NodeService/DeleteNode", { name: nameOf(row) }),
  cli: (ids) => [`rackwright node delete ${ids.join(" ")}`],
};

export const VERBS: Verb[] = [
  DEPLOY,
  REIMAGE,
  RELEASE,
  RETRY,
  HOLD,
  RESUME,
  QUARANTINE,
  READMIT,
  BELIEVE,
  power(
    "power-on",
    "Power on",
    "POWER_ACTION_ON",
    "The machines are switched on. They wait in line where many start at once.",
    false,
  ),
  power("power-off", "Power off", "POWER_ACTION_OFF", "The machines are switched off.", true),
  {
    ...power("power-cycle", "Power cycle", "POWER_ACTION_CYCLE", "The machines are switched off and on.", true),
    isForCustomers: true,
  },
  AC_CYCLE,
  FIRMWARE,
  SETTINGS,
  ROTATE,
  DELETE,
];
