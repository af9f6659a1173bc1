// Answers calls of the API from the made-up world, by the Connect protocol in JSON.
import { Clusters, clusterCalls } from "./dev-clusters.mjs";
import { hallCalls } from "./dev-hall-calls.mjs";
import { consoleCalls, consoleStreams } from "./dev-console.mjs";
import { madeUpImages, roleCheck, siteCalls } from "./dev-site.mjs";
import { Uploads } from "./dev-uploads.mjs";
import { iso, random, versionOf } from "./dev-world.mjs";
import { nodeCalls } from "./dev-node.mjs";

const PAGE = 50;

export class Refusal extends Error {
  constructor(code, message, hint = "", fields = []) {
    super(message);
    Object.assign(this, { code, hint, fields });
  }
}

const HTTP = {
  not_found: 404,
  invalid_argument: 400,
  failed_precondition: 400,
  permission_denied: 403,
  unimplemented: 501,
};

function errorBody({ code = "internal", message, hint, fields = [] }) {
  const details = [];
  if (hint) {
    details.push({ type: "google.rpc.LocalizedMessage", value: "", debug: { locale: "en", message: hint } });
  }
  if (fields.length > 0) {
    details.push({ type: "google.rpc.BadRequest", value: "", debug: { fieldViolations: fields } });
  }
  return { code, message, details };
}

/** The API's filter language over one node or operation. */
function matcher(filter, fields) {
  const terms = (filter ?? "").split(/\s+AND\s+/).filter((text) => text.trim() !== "");
  const tests = terms.map((text) => {
    const [, field, operator, quoted, plain] = /^\s*([\w.-]+)\s*(!?=)\s*(?:"([^"]*)"|(\S*))\s*$/.exec(text) ?? [];
    const read = field?.startsWith("labels.") ? (item) => item.metadata?.labels?.[field.slice(7)] ?? "" : fields[field];
    if (read === undefined) {
      const known = Object.keys(fields).join(", ");
      throw new Refusal("invalid_argument", "the request has a fault", "", [
        { field: "filter", description: `at character 1: unknown field "${field ?? text}"; known: ${known}` },
      ]);
    }
    return (item) => (read(item) === (quoted ?? plain)) === (operator === "=");
  });
  return (item) => tests.every((test) => test(item));
}

const NODE_FIELDS = {
  state: (node) => node.status.state.replace("NODE_STATE_", "").toLowerCase(),
  sku: (node) => node.spec.sku,
  name: (node) => node.name.slice(6),
};

const OPERATION_FIELDS = {
  target: (item) => item.target,
  kind: (item) => item.kind,
  done: (item) => String(item.done ?? false),
};

const CLUSTER_FIELDS = {
  state: ({ status }) => status.state.replace("CLUSTER_STATE_", "").toLowerCase(),
  customer: ({ spec }) => spec.customer,
  name: ({ name }) => name.slice(9),
};

function page(items, { pageSize, pageToken }, key) {
  const start = Number(pageToken || 0);
  const size = pageSize || PAGE;
  const end = start + size;
  return { [key]: items.slice(start, end), nextPageToken: end < items.length ? String(end) : undefined };
}

function visible(world) {
  const all = [...world.nodes.values()];
  return world.role.startsWith("customer") ? all.filter((node) => node.status.claim?.customer === "acme") : all;
}

function alarms(world) {
  if (world.nodes.size < 50) {
    return [];
  }
  const names = [...world.nodes.keys()];
  const alarm = (kind, subject, severity, message, advice, nodes, minutes, more = {}) => ({
    name: `alarms/${kind} ${subject}`,
    kind,
    subject,
    severity,
    message,
    advice,
    nodeCount: nodes.length,
    nodes: nodes.slice(0, 100),
    openTime: iso(Date.now() - minutes * 6e4),
    seenTime: iso(Date.now()),
    ...more,
  });
  return [
    alarm(
      "leak",
      "cdu/cdu-2",
      "critical",
      "the detector at manifold B reports Critical",
      "send a technician; drain the nodes that water can reach",
      names.slice(8, 40),
      7,
      { blocks: true, cordons: true },
    ),
    alarm(
      "over-reservation",
      "rack-pdu/pdu-a-r004",
      "warning",
      "the load is 12 % above the reservation",
      "correct the SKU's maximum or set power caps",
      names.slice(24, 32),
      190,
    ),
    alarm(
      "power-supply",
      names[20],
      "warning",
      "power supply 3 is Critical",
      "replace the power supply",
      [names[20]],
      2_900,
    ),
  ];
}

function fabric(world) {
  if (world.nodes.size < 50) {
    return { checkTime: iso(Date.now() - 5e4), isolationCheckTime: iso(Date.now() - 3e4) };
  }
  return {
    checkTime: iso(Date.now() - 5e4),
    isolationCheckTime: iso(Date.now() - 3e4),
    faults: [
      {
        id: "cable/missing/0417",
        kind: "cable",
        fault: "missing",
        cables: ["0417"],
        ends: [{ a: "leaf-01/7", b: "spine-02/1" }],
        clusters: ["clusters/alpha"],
        text: "cable 0417 from leaf-01/7 to spine-02/1 has no link",
        since: iso(Date.now() - 54e5),
      },
      {
        id: "cable/wrong-width/0101",
        kind: "cable",
        fault: "wrong-width",
        cables: ["0101"],
        text: "cable 0101 from gpu-014 to leaf-03/9 runs at 1x instead of 4x",
        since: iso(Date.now() - 9e6),
      },
    ],
    breaches: [
      {
        id: "foreign-key/1",
        kind: "foreign-key",
        text: "1 port has a partition key that it must not have",
        ports: "1",
        clusters: ["clusters/borealis-7"],
        since: iso(Date.now() - 9e7),
        endTime: iso(Date.now() - 8.98e7),
      },
    ],
  };
}

function calls(world, images, uploads) {
  const find = (name) => {
    const node = world.nodes.get(name);
    if (node === undefined) {
      throw new Refusal("not_found", `node ${name?.slice(6)} does not exist`);
    }
    return node;
  };
  const clusters = new Clusters(world);
  const ofCustomer = world.role.startsWith("customer");
  const isSeen = ({ target }) =>
    !ofCustomer ||
    world.nodes.get(target)?.status.claim?.customer === "acme" ||
    clusters.list().some(({ name }) => name === target);
  return {
    "AuthService/WhoAmI": () => ({
      member: ofCustomer ? "cleo@acme" : world.role === "auditor" ? "dora" : "ann",
      role: `ROLE_${world.role.toUpperCase().replace("-", "_")}`,
      customer: ofCustomer ? "acme" : undefined,
      expireTime: iso(Date.now() + 11 * 36e5),
    }),
    "ControlService/GetControl": () => ({
      warnings: world.nodes.size > 50 ? ["no backup of the key folder was reported in 30 days"] : [],
    }),
    "NodeService/ListNodes": (request) =>
      page(visible(world).filter(matcher(request.filter, NODE_FIELDS)), request, "nodes"),
    "OperationService/GetOperation": ({ name }) => world.operations.find((operation) => operation.name === name) ?? {},
    "OperationService/CancelOperation": ({ name }) =>
      Object.assign(world.operations.find((operation) => operation.name === name) ?? {}, {
        done: true,
        endTime: iso(Date.now()),
        error: { code: 1, message: "cancelled by ann" },
      }),
    "OperationService/ListOperations": (request) =>
      page(world.operations.filter(isSeen).filter(matcher(request.filter, OPERATION_FIELDS)), request, "operations"),
    "PowerService/ListAlarms": () => ({
      alarms: alarms(world),
      coverage: [
        { kind: "node", known: world.nodes.size, read: world.nodes.size < 50 ? 0 : world.nodes.size - 3 },
        { kind: "pdu", known: 40, read: world.nodes.size < 50 ? 0 : 38 },
        { kind: "cooling", known: 6 },
      ],
    }),
    "SiteService/ListFabricFaults": () => fabric(world),
    "ClusterService/ListClusters": (request) =>
      page(clusters.list().filter(matcher(request.filter, CLUSTER_FIELDS)), request, "clusters"),
    ...clusterCalls(clusters),
    ...siteCalls(world, clusters, images),
    ...consoleCalls(),
    ...uploads.calls((...fault) => {
      throw new Refusal(...fault);
    }),
    ...nodeCalls(world, find, random),
  };
}

/** Streams: each sends what it has, then what comes, and returns how to stop. */
function streams(world) {
  return {
    "NodeService/WatchNodes": ({ filter }, send) => {
      const matches = matcher(filter, NODE_FIELDS);
      const tell = (node) => send(matches(node) ? { node } : { node: { name: node.name }, deleted: true });
      const waiting = visible(world).filter(matches);
      let timer;
      const sendSome = () => {
        waiting.splice(0, 500).forEach((node) => send({ node }));
        timer = waiting.length > 0 ? setImmediate(sendSome) : send({ synced: true });
      };
      sendSome();
      world.watchers.add(tell);
      return () => {
        clearImmediate(timer);
        world.watchers.delete(tell);
      };
    },
    "EventService/StreamEvents": ({ target, onlyNew, kinds = [], minSeverity, newest }, send) => {
      const severities = ["EVENT_SEVERITY_INFO", "EVENT_SEVERITY_WARNING", "EVENT_SEVERITY_ERROR"];
      const isOfKind = ({ kind }) => kinds.length === 0 || kinds.some((one) => one === kind || (one.endsWith(".*") && kind.startsWith(one.slice(0, -1))));
      const isSevere = ({ severity }) => !minSeverity || severities.indexOf(severity) >= severities.indexOf(minSeverity);
      const isWanted = (event) => (!target || event.target === target) && isOfKind(event) && isSevere(event);
      const tell = (event) => isWanted(event) && send(event);
      if (!onlyNew) {
        world.events.filter(isWanted).slice(-(newest || world.events.length)).forEach(send);
      }
      world.eventWatchers.add(tell);
      return () => world.eventWatchers.delete(tell);
    },
    ...consoleStreams,
    "SiteService/GetSite": (_, send, end) => {
      send({ site: { name: "site", title: "Hall 2, Stavanger", nodes: world.nodes.size } });
      end();
      return () => undefined;
    },
  };
}

function envelope(flags, message) {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

function stream(run, request, response) {
  response.writeHead(200, { "Content-Type": "application/connect+json" });
  const end = (error) => response.end(envelope(2, error ? { error: errorBody(error) } : {}));
  try {
    const stop = run(request, (message) => void response.write(envelope(0, message)), end);
    response.on("close", stop);
  } catch (error) {
    end(error);
  }
}

/** The handler of requests. */
export function mockApi(world) {
  const images = madeUpImages();
  const uploads = new Uploads(world, images);
  const before = calls(world, images, uploads);
  const known = { ...before, ...hallCalls(world, before, (...fault) => new Refusal(...fault)) };
  const followed = streams(world);
  const check = roleCheck(world.role);
  return (request, response) => {
    if (request.method === "PUT") {
      uploads.write(request, response);
      return;
    }
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const method = request.url.replace("/rackwright.v1.", "");
      const body = Buffer.concat(parts);
      if (followed[method]) {
        stream((...given) => (check(method), followed[method](...given)), JSON.parse(body.subarray(5)), response);
        return;
      }
      let [status, answer] = [200, {}];
      try {
        check(method);
        if (known[method] === undefined) {
          throw new Refusal("unimplemented", `the made-up world does not know ${method}`);
        }
        answer = known[method](JSON.parse(body.length > 0 ? body : "{}"));
      } catch (error) {
        [status, answer] = [HTTP[error.code] ?? 500, errorBody(error)];
      }
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(answer));
    });
  };
}
