// The calls of the made-up world about one node.
import { iso } from "./dev-world.mjs";

const PATH = ["DISCOVERED", "INSPECTING", "AVAILABLE", "ALLOCATED", "IMAGING", "REBOOTING", "VALIDATING", "ACTIVE"];
const MINUTES = {
  DISCOVERED: 1,
  INSPECTING: 6,
  AVAILABLE: 5_000,
  ALLOCATED: 2,
  IMAGING: 7,
  REBOOTING: 4,
  VALIDATING: 9,
  ACTIVE: 20_000,
};
const EDGES = ["enrolled", "inspected", "claimed", "started", "written", "hostup", "validated"];

const drive = (mac) => (index) => ({
  name: `nvme${index}n1`,
  model: "KCM7XVUG3T20",
  serialNumber: `9DK0A${index}${mac.slice(-2)}`,
  firmwareVersion: "0105",
  sizeBytes: "3200631791616",
  transport: "nvme",
  eraseMethods: ["ERASE_METHOD_NVME_SANITIZE_CRYPTO", "ERASE_METHOD_OVERWRITE"],
  nativeBytes: "3200631791616",
});
const hca = (index) => ({
  name: `mlx5_${index}`,
  nodeGuid: `a088c2030${index}f4b21a`,
  firmwareVersion: "28.41.1000",
  boardId: "MT_0000000838",
  pciAddress: `0000:${index}a:00.0`,
  ports: [
    {
      number: 1,
      portGuid: `a088c2030${index}f4b21a`,
      state: "ACTIVE",
      rate: "400 Gb/sec (4X NDR)",
      lid: 117 + index,
    },
  ],
});

function inventory(node) {
  const mac = node.status.macs[0];
  return {
    dmi: {
      systemVendor: "NVIDIA",
      productName: "DGXH100",
      serialNumber: `1660223${mac.slice(-2)}`,
      uuid: "6b1c0c34-93a4-11ee-8000-a088c2030000",
      biosVendor: "AMI",
      biosVersion: "1.05.03",
      biosDate: "03/12/2025",
    },
    cpus: [0, 1].map((socket) => ({
      socket,
      model: "Intel(R) Xeon(R) Platinum 8480C",
      cores: 56,
      threads: 112,
      microcode: "0x2b000603",
    })),
    memoryBytes: "2163834945536",
    memoryModules: Array.from({ length: 32 }, (_, slot) => ({
      slot: `DIMM ${slot}`,
      sizeBytes: "68719476736",
      manufacturer: "Samsung",
      partNumber: "M321R8GA0BB0",
      speedMts: 4800,
    })),
    nics: [
      {
        name: "eno1",
        mac,
        driver: "ixgbe",
        pciAddress: "0000:01:00.0",
        firmwareVersion: "3.60",
        linkUp: true,
        speedMbps: 10000,
        addresses: ["10.40.1.9/16"],
        neighbour: "oob-12/7",
      },
      { name: "enp170s0", mac: "58:a2:e1:00:00:ff", driver: "mlx5_core", linkUp: false },
    ],
    hcas: [1, 2, 3, 4].map(hca),
    drives: [0, 1, 2].map(drive(mac)),
    gpus: Array.from({ length: 8 }, (_, index) => ({
      pciAddress: `0000:${index}b:00.0`,
      vendorId: 4318,
      deviceId: 9008,
      model: "H100 SXM5 80GB",
    })),
    tpm: { present: true, majorVersion: 2, manufacturer: "INTC" },
    firmwareVersions: { bmc: "24.09.17", bios: "1.05.03", "cpld-motherboard": "0.2.2.7" },
    bootMode: "uefi",
    secureBoot: true,
    kernelRelease: "6.12.9-rackwright",
    architecture: "x86_64",
    pciDevices: Array.from({ length: 96 }, () => ({})),
    excludedDevices: [{ name: "sr0", sizeBytes: "0", reason: "the BMC's virtual medium" }],
  };
}

function history(node) {
  const state = node.status.state.replace("NODE_STATE_", "");
  const states = PATH.includes(state) ? PATH.slice(0, PATH.indexOf(state) + 1) : [...PATH.slice(0, 5), state];
  let time = Date.parse(node.status.stateSince);
  const steps = [];
  for (let index = states.length - 1; index > 0; index -= 1) {
    const before = states[index - 1];
    const spent = (MINUTES[before] ?? 10) * 60 + 13;
    steps.push({
      edge: EDGES[index - 1] ?? "failed",
      fromState: `NODE_STATE_${before}`,
      toState: `NODE_STATE_${states[index]}`,
      time: iso(time),
      reason: index === states.length - 1 ? node.status.reason : "",
      timeInFormerState: `${spent}s`,
    });
    time -= spent * 1_000;
  }
  return steps;
}

const HINTS = {
  ACTIVE: ["reimage ID: --image IMAGE writes another image", "release ID: erases it and frees it"],
  AVAILABLE: ["deploy ID: --image IMAGE puts an image on it"],
  FAILED: ["retry ID: writes the image again", "release ID: erases it and frees it", "reports ID: shows the checks"],
  QUARANTINED: ["readmit ID: erases it and returns it to the pool"],
  MAINTENANCE: ["resume ID: puts it back into service", "readmit ID: erases it first"],
};

function explain(node) {
  const id = node.name.slice(6);
  const state = node.status.state.replace("NODE_STATE_", "");
  const hints = HINTS[state] ?? [
    "watch ID: shows progress",
    "quarantine ID: stops the work and takes the node out of service",
  ];
  const wait = node.status.waitingFor ? `, waiting for ${node.status.waitingFor}` : "";
  const ago = (minutes) => iso(Date.now() - minutes * 6e4);
  return {
    node,
    summary: `${id} has been ${state.toLowerCase()} for a while${wait}${node.status.reason ? `. Reason: ${node.status.reason}` : ""}`,
    hints: hints.map((hint) => `rackwright node ${hint.replace("ID", id)}`),
    history: history(node),
    attempts:
      state === "ACTIVE" || state === "AVAILABLE"
        ? []
        : [
            { operation: "operations/1", effect: "set-boot", number: 2, startTime: ago(3), outcome: "running" },
            {
              operation: "operations/1",
              effect: "set-boot",
              number: 1,
              startTime: ago(6),
              endTime: ago(5),
              outcome: "failed",
              detail: "the BMC answered 503 Service Unavailable",
            },
          ],
    facts: [
      { name: "power", value: node.status.power, time: ago(2) },
      { name: "bmc", value: "answers as DGX BMC 24.09", time: ago(2) },
      { name: "bmc accounts", value: "2 accounts: rackwright, admin (disabled)", time: ago(60 * 30) },
      { name: "firmware settings", value: "as wanted, proven by a start", time: ago(60 * 26) },
      { name: "identity at boot", value: "tpm; its BMC has the medium with the boot's secret", time: ago(60 * 27) },
      { name: "cabling", value: "as the site file states", time: ago(9) },
    ],
  };
}

const CHECKS = [
  "memory",
  "gpu-count",
  "gpu-ecc",
  "hca-count",
  "hca-link-rate",
  "disk-read-rate",
  "kernel",
  "os-release",
  "nvlink",
  "pcie-width",
  "time-sync",
  "secure-boot",
];

function reports(node) {
  const report = (index, passed) => ({
    name: `${node.name}/reports/0f${index}c2d1e-7711-4b0a-8a51-6a1f00000000`,
    claimGeneration: String(index + 1),
    startTime: iso(Date.now() - (index + 1) * 9e8),
    endTime: iso(Date.now() - (index + 1) * 9e8 + 4.2e5),
    passed,
    profile: "dgx-h100",
    checks: CHECKS.map((id, at) => {
      const isBad = !passed && at === 1;
      return {
        id,
        verdict: isBad ? "VERDICT_FAIL" : at === 11 ? "VERDICT_NOT_APPLICABLE" : "VERDICT_PASS",
        measured: isBad ? "7" : "8",
        threshold: "8",
        source: at % 2 ? "profile" : "inventory",
        detail: isBad ? "0000:5b:00.0 is missing" : at === 11 ? "the image does not ask for it" : "",
      };
    }),
  });
  return node.status.claim || node.status.imageWritten
    ? [report(0, node.status.state !== "NODE_STATE_FAILED"), report(1, true)]
    : [];
}

function certificates(node) {
  return [0, 1, 2].map((index) => ({
    name: `${node.name}/eraseCertificates/${index}`,
    node: node.name,
    claimGeneration: "1",
    driveName: `nvme${index}n1`,
    driveModel: "KCM7XVUG3T20",
    driveSerial: `9DK0A${index}`,
    driveBytes: "3200631791616",
    method: "ERASE_METHOD_NVME_SANITIZE_CRYPTO",
    startTime: iso(Date.now() - 3e9),
    endTime: iso(Date.now() - 3e9 + 24e4),
    samples: "4096",
    sampleBytes: "65536",
    rejectedMethods: [],
    witnesses: ["bmc", "inspection"],
    identity: "tpm",
    number: String(4711 + index),
    evidence: ["memory: the machine was without power for 2 min 10 s", "native capacity 3.2 TB, no hidden area"],
    signedPayload: "",
    signature: "",
    signerPublicKey: "",
  }));
}

function settings(node) {
  const isOff = node.metadata.uid.endsWith("7");
  const setting = (name, wanted, current) => ({
    name,
    wanted,
    current,
    standing: wanted === current ? "SETTING_STANDING_AS_WANTED" : "SETTING_STANDING_DIFFERS",
  });
  return {
    name: node.name,
    sku: `skus/${node.spec.sku}`,
    readTime: iso(Date.now() - 7e6),
    verifyTime: iso(Date.now() - 9e7),
    driftTime: isOff ? iso(Date.now() - 7e6) : undefined,
    settings: [
      setting("bios/SriovEnable", "Enabled", isOff ? "Disabled" : "Enabled"),
      setting("bios/NumaPerSocket", "2", "2"),
      setting("secure-boot", "enabled", "enabled"),
    ],
  };
}

export function nodeCalls(world, find) {
  const act = (state, done) => (request) => {
    const node = find(request.name);
    world.move(node, state, request.reason);
    return done === "node" ? node : world.operations[0];
  };
  const keep = ({ name }) => world.begin(find(name));
  return {
    "NodeService/GetNode": ({ name, readMask }) =>
      readMask === "name"
        ? { name: find(name).name }
        : { ...find(name), status: { ...find(name).status, inventory: inventory(find(name)) } },
    "NodeService/ExplainNode": ({ name }) => explain(find(name)),
    "NodeService/ListReports": ({ parent }) => ({ reports: reports(find(parent)) }),
    "NodeService/ListEraseCertificates": ({ parent }) => ({ eraseCertificates: certificates(find(parent)) }),
    "BootService/TraceBoot": ({ mac }) => ({
      mac,
      stages: ["dhcp-discover", "dhcp-request", "http", "script", "kernel", "initrd", "agent"].map((stage, index) => ({
        stage,
        time: iso(Date.now() - 9e6 + index * 1_900),
        remote: "10.40.1.9",
        detail: index === 2 ? "x86-64 UEFI, ipxe.efi, 1.1 MB" : "",
      })),
    }),
    "SettingsService/GetNodeSettings": ({ name }) => settings(find(name)),
    "FirmwareService/GetNodeFirmware": ({ name }) => ({
      name,
      seenTime: iso(Date.now() - 8e7),
      rows: [
        { component: "bmc", id: "BMC_0", installed: "24.09.17", wanted: "24.10.02", verdict: "update", order: "bmc" },
        {
          component: "bios",
          id: "BIOS",
          installed: "1.05.03",
          wanted: "1.05.03",
          verdict: "up-to-date",
          order: "bios",
        },
      ],
    }),
    "PowerService/ExplainPower": ({ name }) => ({
      name,
      nodes: [name],
      nodeCount: 1,
      reservedWatts: 10_200,
      measuredWatts: 6_840,
      steps: [],
      psus: [],
      losses: [
        { feed: "A", live: 3, liveWatts: 9_900, survives: true },
        { feed: "B", live: 3, liveWatts: 9_900, survives: true },
      ],
    }),
    "NodeService/DeployNode": act("ALLOCATED"),
    "NodeService/ReimageNode": act("IMAGING"),
    "NodeService/ReleaseNode": act("RECLAIMING"),
    "NodeService/ReadmitNode": act("RECLAIMING"),
    "NodeService/RetryNode": act("INSPECTING"),
    "NodeService/ResumeNode": act("INSPECTING"),
    "NodeService/HoldNode": act("MAINTENANCE", "node"),
    "NodeService/QuarantineNode": act("QUARANTINED", "node"),
    "NodeService/SetNodePower": keep,
    "SettingsService/ApplyNodeSettings": keep,
    "FirmwareService/UpdateNodeFirmware": keep,
    "CredentialService/RotateBmcPassword": keep,
    "NodeService/BelieveNode": ({ name }) => {
      const node = find(name);
      Object.assign(node.status, { health: "NODE_HEALTH_OK", doubt: "" });
      world.changed(node);
      return node;
    },
    "NodeService/DeleteNode": ({ name }) => {
      world.nodes.delete(find(name).name);
      return {};
    },
  };
}
