// A made-up site that changes: for work on the console without a control plane. The same number of nodes gives the same
// site.

const SKUS = ["dgx-h100", "hgx-h200", "gb200-nvl", "storage-2u"];
const CUSTOMERS = ["acme", "borealis", "northlab", "quanta-bio"];
const IMAGES = ["debian", "ubuntu-hpc", "rocky-slurm"];
/** State, share in a large site, and what nodes in it wait for. */
const SHARES = [
  ["ACTIVE", 0.62, [""]],
  ["AVAILABLE", 0.17, [""]],
  [
    "IMAGING",
    0.05,
    ["the agent to write the image", "its turn to fetch the image, in line at rack r07: 8 of 8 in use"],
  ],
  ["VALIDATING", 0.03, ["the checks of the installed system", "the other nodes of its cluster"]],
  ["REBOOTING", 0.02, ["the installed system to answer"]],
  [
    "RECLAIMING",
    0.03,
    [
      "the agent to erase the drives",
      "the memory to lose its data",
      "its turn to be switched on, in line at power circuit-a-r03: 2 of 2 in use",
    ],
  ],
  ["ALLOCATED", 0.015, ["the machine to boot into the agent", "its switch ports to be in provisioning"]],
  ["INSPECTING", 0.02, ["the agent's inventory", "the machine to boot into the agent"]],
  ["DISCOVERED", 0.01, ["the BMC to report its identity", "the next try of identify: connection refused"]],
  ["FAILED", 0.012, ["an operator"]],
  ["MAINTENANCE", 0.013, ["an operator"]],
  ["QUARANTINED", 0.01, ["an operator"]],
];
const REASONS = {
  FAILED: [
    "the image was not written in 45 minutes",
    "check gpu-count: 7 of 8",
    "the machine did not boot into the agent in 20 minutes",
  ],
  MAINTENANCE: ["fan 3 is replaced", "cable work in row B"],
  QUARANTINED: ["the drives differ from the record", "another TPM answered for this node"],
};
const STEPS = {
  AVAILABLE: "ALLOCATED",
  ALLOCATED: "IMAGING",
  IMAGING: "REBOOTING",
  REBOOTING: "VALIDATING",
  VALIDATING: "ACTIVE",
  ACTIVE: "RECLAIMING",
  RECLAIMING: "AVAILABLE",
  INSPECTING: "AVAILABLE",
};
const EDGES = {
  ALLOCATED: "claimed",
  IMAGING: "started",
  REBOOTING: "written",
  VALIDATING: "hostup",
  ACTIVE: "validated",
  RECLAIMING: "released",
  AVAILABLE: "erased",
};
const CLAIMED = new Set(["ALLOCATED", "IMAGING", "REBOOTING", "VALIDATING", "ACTIVE"]);
const BUSY = new Set(["ALLOCATED", "IMAGING", "REBOOTING", "VALIDATING", "RECLAIMING", "INSPECTING", "DISCOVERED"]);

/** Numbers that look random and are the same each time. */
export function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
}

export const iso = (time) => new Date(time).toISOString();
const digest = (name) =>
  `b3-${[...name]
    .map((c) => c.charCodeAt(0).toString(16))
    .join("")
    .padEnd(64, "0a")
    .slice(0, 64)}`;
export const versionOf = (image) => `images/${image}/versions/${digest(image)}`;

export class World {
  constructor(size, role) {
    this.role = role;
    this.random = random(size * 7919 + 17);
    this.nodes = new Map();
    this.operations = [];
    this.events = [];
    /** Nodes that do not change their state by themselves. */
    this.pinned = new Set();
    this.watchers = new Set();
    this.eventWatchers = new Set();
    for (let index = 1; index <= size; index += 1) {
      const node = this.makeNode(index, size);
      this.nodes.set(node.name, node);
    }
    for (const node of this.nodes.values()) {
      if (BUSY.has(this.state(node)) && this.operations.length < 400) {
        this.begin(node);
      }
    }
    setInterval(() => this.tick(), 700).unref();
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)];
  }

  state(node) {
    return node.status.state.replace("NODE_STATE_", "");
  }

  makeNode(index, size) {
    const id = `gpu-${String(index).padStart(String(size).length, "0")}`;
    const sku = SKUS[Math.min(SKUS.length - 1, Math.floor((index / size) * 3.2))];
    const rack = `r${String(1 + Math.floor(index / 8)).padStart(3, "0")}`;
    let at = size < 4 ? [0.1, 0.7, 0.85][index - 1] : this.random();
    const [state] = SHARES.find(([, share]) => (at -= share) < 0) ?? SHARES[0];
    const hex = index.toString(16).padStart(6, "0");
    const node = {
      name: `nodes/${id}`,
      spec: {
        sku,
        bmc: {
          address: `https://10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`,
          username: "rackwright",
          certificateSha256: `sha256:${hex.repeat(11).slice(0, 64)}`,
        },
      },
      status: {
        macs: [`58:a2:e1:${hex.match(/../g).join(":")}`],
        identity: "tpm",
        tpmEk: `sha256:${hex.repeat(11).slice(0, 64)}`,
      },
      metadata: {
        uid: hex,
        resourceVersion: "1",
        createTime: iso(Date.now() - 90 * 864e5),
        labels: { rack, row: rack.slice(0, 2), unit: String((index % 8) * 4 + 1) },
      },
    };
    this.enter(node, state, Date.now() - this.random() ** 4 * 20 * 864e5 - 4_000);
    const doubt = this.random();
    if (size > 50 && doubt < 0.01) {
      const silent = {
        health: "NODE_HEALTH_UNREACHABLE",
        healthReason: "no answer: connection timed out",
        power: "unknown",
      };
      const refused = {
        health: "NODE_HEALTH_LOGIN_REFUSED",
        healthReason: "the BMC refuses the stored password; the password is not sent again",
      };
      const doubted = {
        health: "NODE_HEALTH_DOUBTED",
        doubt: "the database was restored from a copy of 03:00",
        doubtSince: iso(Date.now() - 36e5),
      };
      Object.assign(node.status, doubt < 0.006 ? silent : doubt < 0.009 ? refused : doubted);
    }
    return node;
  }

  enter(node, state, since) {
    const { status } = node;
    const [, , waits] = SHARES.find(([name]) => name === state);
    status.state = `NODE_STATE_${state}`;
    status.stateSince = iso(since);
    status.waitingFor = this.pick(waits);
    status.waitingUntil = status.waitingFor === "" ? undefined : iso(Date.now() + 3e5);
    status.stateDeadline = BUSY.has(state)
      ? iso(Math.max(since + 45 * 6e4, Date.now() + (this.random() - 0.05) * 3e6))
      : undefined;
    status.reason = REASONS[state] ? this.pick(REASONS[state]) : "";
    status.health ??= state === "DISCOVERED" ? "NODE_HEALTH_UNKNOWN" : "NODE_HEALTH_OK";
    status.power = state === "AVAILABLE" || state === "QUARANTINED" ? "off" : "on";
    status.agentConnected = ["IMAGING", "INSPECTING", "RECLAIMING"].includes(state);
    const isClaimed = CLAIMED.has(state) || (state === "FAILED" && this.random() < 0.5);
    if (isClaimed && !status.claim) {
      const id = node.name.slice(6);
      status.claimGeneration = String(Number(status.claimGeneration ?? 0) + 1);
      status.claim = {
        generation: status.claimGeneration,
        imageVersion: versionOf(this.pick(IMAGES)),
        hostname: id,
        customer: this.pick(CUSTOMERS),
        sshAuthorizedKeys: ["ssh-ed25519 AAAA ann"],
      };
      status.address = `10.40.${Math.floor(this.random() * 250)}.${Math.floor(this.random() * 250)}`;
    } else if (!isClaimed) {
      delete status.claim;
      delete status.address;
    }
    if (state === "ACTIVE" && status.claim) {
      status.imageWritten = status.claim.imageVersion;
    }
    node.metadata.resourceVersion = String(Number(node.metadata.resourceVersion) + 1);
    node.metadata.updateTime = iso(Date.now());
  }

  begin(node) {
    const kind = { RECLAIMING: "release", INSPECTING: "enroll", DISCOVERED: "enroll" }[this.state(node)] ?? "deploy";
    const uuid = `${(this.operations.length + 1).toString(16).padStart(8, "0")}-5d1c-4a52-9c1e-000000000000`;
    const operation = {
      name: `operations/${uuid}`,
      kind,
      target: node.name,
      requestedBy: this.pick(["ann", "bob", "automation"]),
      createTime: node.status.stateSince,
      progress: {
        step: kind === "release" ? "erasing nvme1n1" : "writing the image",
        percent: Math.floor(this.random() * 90),
        logicalBytes: "4000000000",
        logicalBytesTotal: "12000000000",
        bytesPerSecond: "410000000",
      },
      metadata: { resourceVersion: "1" },
    };
    this.operations.unshift(operation);
    return operation;
  }

  tell(kind, target, message, attributes = {}) {
    const event = {
      position: String(this.events.length + 1),
      time: iso(Date.now()),
      kind,
      target,
      message,
      attributes,
      severity: /(^|\.)failed$/.test(kind) ? "EVENT_SEVERITY_ERROR" : kind === "condemned" ? "EVENT_SEVERITY_WARNING" : "EVENT_SEVERITY_INFO",
    };
    this.events.push(event);
    this.eventWatchers.forEach((tell) => tell(event));
  }

  changed(node) {
    this.watchers.forEach((tell) => tell(node));
  }

  /** Some nodes go on to their next state; operations make progress. */
  tick() {
    for (const operation of this.operations.filter(({ done }) => !done).slice(0, 60)) {
      operation.progress.percent += Math.floor(this.random() * 4);
      if (operation.progress.percent >= 100) {
        this.finish(operation);
      }
    }
    const all = [...this.nodes.values()];
    if (all.length === 0) {
      return;
    }
    for (let count = 0; count < Math.max(1, all.length / 2000); count += 1) {
      const node = this.pick(all);
      const next = STEPS[this.state(node)];
      const isRare = ["ACTIVE", "AVAILABLE"].includes(this.state(node)) && this.random() < 0.9;
      if (next && !isRare && !this.pinned.has(node.name)) {
        this.move(node, next);
      }
    }
  }

  finish(operation) {
    operation.done = true;
    operation.endTime = iso(Date.now());
    if (this.random() < 0.1) {
      operation.error = { code: 4, message: "the agent did not return in 20 minutes" };
      this.tell("effect.failed", operation.target, operation.error.message);
    } else {
      operation.progress.percent = 100;
    }
  }

  move(node, state, reason = "") {
    const before = this.state(node).toLowerCase();
    this.enter(node, state, Date.now());
    node.status.reason = reason || node.status.reason;
    this.tell(EDGES[state] ?? "held", node.name, `${node.name.slice(6)}: ${before} -> ${state.toLowerCase()}`);
    this.changed(node);
    if (BUSY.has(state)) {
      this.begin(node);
    }
  }
}
