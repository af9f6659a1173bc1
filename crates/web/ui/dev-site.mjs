// Images, usage and discoveries of the made-up world, and which role may make which call.
import { readFileSync } from "node:fs";
import { Refusal } from "./dev-calls.mjs";
import { peopleCalls, remove } from "./dev-people.mjs";
import { iso, random, versionOf } from "./dev-world.mjs";

const DAY = 864e5;
const MATRIX = new URL("../../../tests/tests/attacks/matrix.txt", import.meta.url);
const COLUMNS = ["operator", "viewer", "auditor", "customer-admin", "customer-user"];

/** Refuses what the real control plane would refuse to the role. */
export function roleCheck(role) {
  const rows = readFileSync(MATRIX, "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/));
  const allowed = new Map(rows.map(([method, ...yes]) => [method, yes[COLUMNS.indexOf(role)] === "yes"]));
  return (method) => {
    if (allowed.get(method) === false) {
      throw new Refusal("permission_denied", `the role ${role} may not call this`);
    }
  };
}

/** The images of the made-up world. */
export function madeUpImages() {
  const version = (image, index) => {
    const name =
      index === 0
        ? versionOf(image)
        : versionOf(image)
            .replace(/..$/, `${index}${index}`)
            .replace("b3-", `b3-${index}`)
            .slice(0, versionOf(image).length);
    return {
      name,
      createTime: iso(Date.now() - (6 + index * 41) * DAY),
      logicalBytes: "12884901888",
      dataBytes: String(4_100_000_000 + index * 71e6),
      compressedBytes: String(1_630_000_000 + index * 30e6),
      chunks: 1_024 + index,
      sourceSha256: "5d".repeat(32),
      sourceFormat: "IMAGE_FORMAT_QCOW2",
      signedBy: image === "debian" ? "" : "RWQf6LRCGA9i53ml",
      osId: image.split("-")[0],
      osVersion: image === "ubuntu-hpc" ? "24.04" : "",
      kernel: image === "ubuntu-hpc" ? "6.8.*" : "",
    };
  };
  const images = [
    ["debian", 1],
    ["rocky-slurm", 2],
    ["ubuntu-hpc", 3],
  ].map(([name, count]) => ({
    name: `images/${name}`,
    versions: Array.from({ length: count }, (_, index) => version(name, index)),
    metadata: { labels: name === "ubuntu-hpc" ? { team: "platform" } : {} },
  }));
  return images;
}

function imageCalls(images) {
  return {
    "ImageService/ListImages": () => ({ images }),
    "ImageService/DeleteImage": ({ name }) => {
      const image = images.find((one) => name === one.name || name.startsWith(`${one.name}/`));
      return (
        (name === image?.name ? remove(images, name, "image") : remove(image?.versions ?? [], name, "version")) && {}
      );
    },
  };
}

function sum(world, clusters, terms, { startTime, endTime, customer }) {
  const end = Math.min(Date.now(), endTime ? Date.parse(endTime) : Date.now());
  const seconds = Math.floor(Math.max(0, end - Date.parse(startTime)) / 1_000);
  const wanted = world.role.startsWith("customer") ? "acme" : customer;
  const sums = [...clusters.all.values()]
    .filter(({ spec, status }) => (!wanted || spec.customer === wanted) && status.members.length > 0)
    .map(({ name, spec, status }) => {
      const all = seconds * (status.readyNodes ?? status.members.length);
      const reserved = Math.min(
        all,
        seconds * (terms.find((term) => term.customer === spec.customer && term.sku === spec.sku)?.nodes ?? 0),
      );
      return {
        customer: spec.customer,
        cluster: name,
        sku: spec.sku,
        reservedNodeSeconds: String(reserved),
        onDemandNodeSeconds: String(all - reserved),
        nodeSeconds: String(all),
        open: endTime === undefined,
      };
    });
  const total = (field) => String(sums.reduce((all, one) => all + Number(one[field]), 0));
  return {
    sums,
    total: {
      reservedNodeSeconds: total("reservedNodeSeconds"),
      onDemandNodeSeconds: total("onDemandNodeSeconds"),
      nodeSeconds: total("nodeSeconds"),
      open: endTime === undefined,
    },
    startTime,
    endTime: iso(end),
  };
}

function usageCalls(world, clusters) {
  const terms = [
    {
      name: "terms/acme-2026",
      customer: "acme",
      sku: "dgx-h100",
      nodes: 32,
      startTime: "2026-01-01T00:00:00Z",
      endTime: "2028-01-01T00:00:00Z",
    },
    {
      name: "terms/borealis-h1",
      customer: "borealis",
      sku: "dgx-h100",
      nodes: 16,
      startTime: "2026-02-01T00:00:00Z",
      endTime: "2027-08-01T00:00:00Z",
    },
  ];
  return {
    "MeteringService/SumUsage": (request) => sum(world, clusters, terms, request),
    "MeteringService/ListUsageBreaches": ({ customer, endTime }) => ({
      breaches:
        (customer && customer !== "borealis") || endTime || world.role.startsWith("customer")
          ? []
          : [
              {
                kind: "foreign-key",
                customer: "borealis",
                cluster: "clusters/borealis-7",
                goodTime: iso(Date.now() - 9.05e7),
                since: iso(Date.now() - 9e7),
                endTime: iso(Date.now() - 8.98e7),
                seconds: "200",
              },
            ],
    }),
    "MeteringService/ListTerms": ({ customer }) => ({
      terms: terms.filter((term) => !customer || term.customer === customer),
    }),
    "MeteringService/SetTerm": ({ term }) => {
      const known = terms.find(({ name }) => name === term.name);
      return known ? Object.assign(known, term) : terms[terms.push(term) - 1];
    },
    "MeteringService/DeleteTerm": ({ name }) => remove(terms, name, "term") && {},
  };
}

function finding(parent, index, draw) {
  const states = [
    "new",
    "new",
    "new",
    "known",
    "new",
    "login-refused",
    "moved",
    "new",
    "conflict",
    "not-redfish",
    "new",
    "login-needed",
  ];
  const state = states[index % states.length];
  const address = `10.20.${Math.floor(index / 250)}.${(index % 250) + 5}`;
  const reasons = {
    "login-refused": "the BMC refuses root: HTTP 401",
    moved: "it was at another address, where nothing answers",
    conflict: "10.20.0.14 reports the same UUID, with another serial number",
    "not-redfish": "an SSH server",
    "login-needed": "no login was given for it",
  };
  const isRead = ["new", "known", "moved", "conflict"].includes(state);
  return {
    name: `${parent}/findings/${address}`,
    address: `https://${address}`,
    otherAddresses: index % 7 === 0 ? [`https://10.21.0.${index + 5}`] : [],
    state,
    reason: reasons[state] ?? "",
    node:
      state === "known"
        ? `nodes/gpu-${String(index + 10).padStart(3, "0")}`
        : state === "moved"
          ? `nodes/gpu-${String(index + 200)}`
          : "",
    manufacturer: isRead ? "NVIDIA" : "",
    model: isRead ? "DGXH100" : "",
    serial: isRead ? `16602230${Math.floor(draw() * 9_000 + 1_000)}` : "",
    rack: `r${String(1 + Math.floor(index / 8)).padStart(2, "0")}`,
    unit: (index % 8) * 4 + 1,
    source: "range",
  };
}

function enrol(discovery, { findings, nameTemplate, validateOnly }) {
  const chosen = discovery.findings.filter(({ address }) => findings.includes(address.slice(8)));
  const done = chosen.map((one) => {
    const node =
      one.state === "moved"
        ? one.node
        : `nodes/${(nameTemplate || "{serial}").replace(/\{(\w+)\}/g, (_, field) => one[field] ?? "")}`;
    const action = one.state === "moved" ? "update" : "enrol";
    if (!validateOnly) {
      Object.assign(one, { state: "enrolled", node });
    }
    return { finding: one.name, action, node, reason: one.state === "moved" ? "address" : "" };
  });
  const names = done.map(({ node }) => node);
  if (new Set(names).size < names.length) {
    throw new Refusal("invalid_argument", "the request has a fault", "", [
      {
        field: "name_template",
        description: `two machines would get the name ${names.find((name, at) => names.indexOf(name) !== at).slice(6)}`,
      },
    ]);
  }
  return { findings: done };
}

function discoveryCalls(world) {
  const draw = random(77);
  const made = (id, days, phase, message, size) => {
    const name = `discoveries/${id}-5d1c-4a52-9c1e-000000000000`;
    return {
      name,
      requestedBy: "ann",
      createTime: iso(Date.now() - days * DAY),
      endTime: phase === "done" ? iso(Date.now() - days * DAY + 9e4) : undefined,
      phase,
      message,
      ranges: ["10.20.0.0/22"],
      total: "1024",
      reached: phase === "done" ? "1024" : "260",
      silent: String(phase === "done" ? 1_024 - size : 230),
      operation: name.replace("discoveries", "operations"),
      findings: Array.from({ length: size }, (_, index) => finding(name, index, draw)),
    };
  };
  const all =
    world.nodes.size < 4
      ? []
      : [
          made("7be210aa", 0.001, "looking", "", 26),
          made("31c0ffee", 4, "done", "", 48),
          made("0badcafe", 30, "done", "SSDP from 10.0.0.2: no such address", 3),
        ];
  const shown = ({ findings, ...one }) => {
    const counts = {};
    findings.forEach(({ state }) => (counts[state] = String(Number(counts[state] ?? 0) + 1)));
    return { ...one, counts };
  };
  const find = (name) => all.find((one) => one.name === name) ?? remove([], name, "discovery");
  const advance = () =>
    all
      .filter(({ phase }) => phase === "looking")
      .forEach((one) => {
        one.reached = String(Math.min(1_024, Number(one.reached) + 12));
        one.silent = String(Number(one.reached) - one.findings.length);
        one.phase = one.reached === "1024" ? "done" : "looking";
      });
  return {
    "DiscoveryService/ListDiscoveries": () => {
      advance();
      return { discoveries: all.map(shown) };
    },
    "DiscoveryService/GetDiscovery": ({ name }) => shown(find(name)),
    "DiscoveryService/ListFindings": ({ parent, state }) => ({
      findings: find(parent).findings.filter((one) => !state || one.state === state),
    }),
    "DiscoveryService/StartDiscovery": ({ ranges }) => {
      const one = { ...made(crypto.randomUUID().slice(0, 8), 0, "looking", "", 4), ranges, reached: "40" };
      all.unshift(one);
      return { name: one.operation, kind: "discover", target: one.name };
    },
    "DiscoveryService/EnrolFindings": (request) => enrol(find(request.parent), request),
  };
}

export function siteCalls(world, clusters, images) {
  return { ...peopleCalls(world), ...imageCalls(images), ...usageCalls(world, clusters), ...discoveryCalls(world) };
}
