// Members of the made-up world, and their logins.
import { Refusal } from "./dev-calls.mjs";
import { iso } from "./dev-world.mjs";

const HOUR = 36e5;
const DAY = 24 * HOUR;

function members() {
  const of = (name, role, customer, joined, used, ends) => ({
    name: `members/${name}`,
    role: `ROLE_${role}`,
    customer,
    createTime: iso(Date.now() - joined * DAY),
    lastUseTime: used === null ? undefined : iso(Date.now() - used * HOUR),
    certificateExpireTime: ends === null ? undefined : iso(Date.now() + ends * DAY),
  });
  return [
    of("ann", "OPERATOR", "", 400, 0, 21),
    of("automation", "OPERATOR", "", 380, 0, 12),
    of("bob", "OPERATOR", "", 210, 31, 9),
    of("dora", "AUDITOR", "", 90, 400, 3),
    of("eve@acme", "CUSTOMER_USER", "acme", 44, 5, 27),
    of("cleo@acme", "CUSTOMER_ADMIN", "acme", 120, 1, 18),
    of("kim@borealis", "CUSTOMER_ADMIN", "borealis", 77, null, null),
    of("screen-hall", "VIEWER", "", 300, 0, 6),
    { ...of("carl", "VIEWER", "", 12, 2, null), issuer: "https://login.example" },
  ].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Records of the audit, newest first. */
function audit() {
  const of = (hours, caller, method, target, request, outcome = "OK", message = "") => ({
    time: iso(Date.now() - hours * HOUR),
    caller,
    role: caller === "members/ann" ? "operator" : "customer-user",
    customer: caller.includes("@") ? "acme" : "",
    address: "10.0.4.7",
    client: "via sessions/01a0b2c4 Mozilla/5.0",
    method,
    target,
    request,
    outcome,
    message,
    calls: "1",
  });
  const records = [
    of(0.1, "members/ann", "NodeService/DeployNode", "nodes/gpu-007", "deployment.image=images/ubuntu"),
    of(0.4, "members/eve@acme", "NodeService/HoldNode", "nodes/gpu-003", "", "PERMISSION_DENIED", "only operators may"),
    of(2, "members/ann", "ConsoleService/AttachConsole", "nodes/gpu-007", "enter.node=nodes/gpu-007"),
    of(30, "members/ann", "SessionService/OpenSession", "sessions/01a0b2c4", ""),
  ];
  return records.map((record, number) => ({ ...record, position: String(4_210 - number) }));
}

function fits(record, { caller = "", target = "", method = "", onlyFailed = false, startTime = "" }) {
  return (
    (caller === "" || record.caller === caller) &&
    (target === "" || record.target === target) &&
    record.method.startsWith(method) &&
    (!onlyFailed || record.outcome !== "OK") &&
    record.time >= startTime
  );
}

export function remove(list, name, what) {
  const at = list.findIndex((one) => one.name === name);
  if (at < 0) {
    throw new Refusal("not_found", `${what} ${name} does not exist`);
  }
  return list.splice(at, 1)[0];
}

export function peopleCalls(world) {
  const all = members();
  const caller = world.role.startsWith("customer")
    ? world.role === "customer-admin"
      ? "cleo@acme"
      : "eve@acme"
    : world.role === "auditor"
      ? "dora"
      : "ann";
  const ofCustomer = world.role.startsWith("customer");
  const seen = (list) => list.filter(({ customer }) => !ofCustomer || customer === "acme");
  const tokens = [
    {
      name: "tokens/fedcba9876543210",
      member: "noor@acme",
      role: "ROLE_CUSTOMER_USER",
      customer: "acme",
      createdBy: "ann",
      expireTime: iso(Date.now() + 0.7 * HOUR),
    },
  ];
  const find = (name) => all.find((member) => member.name === name) ?? remove([], name, "member");
  return {
    "AuditService/ListAudit": ({ filter = {} }) => ({ records: audit().filter((record) => fits(record, filter)) }),
    "AuthService/ListMembers": () => ({ members: seen(all) }),
    "AuthService/ListTokens": () => ({ tokens: seen(tokens) }),
    "AuthService/CreateToken": ({ member, role, customer, lifetime }) => {
      const expireTime = iso(Date.now() + Number.parseInt(lifetime) * 1_000);
      tokens.push({
        name: `tokens/${crypto.randomUUID().slice(0, 8)}`,
        member,
        role,
        customer,
        createdBy: caller,
        expireTime,
      });
      return { token: `rw1_${"4f".repeat(32)}`, caSha256: `sha256:${"9c".repeat(32)}`, expireTime };
    },
    "AuthService/DeleteToken": ({ name }) => remove(tokens, name, "token") && {},
    "AuthService/SetMemberRole": ({ name, role }) => {
      if (name === "members/ann") {
        throw new Refusal(
          "failed_precondition",
          "ann is the last operator who can log in",
          "make another member an operator first",
        );
      }
      return Object.assign(find(name), { role });
    },
    "AuthService/RevokeMember": ({ name }) => Object.assign(find(name), { certificateExpireTime: undefined }),
    "AuthService/DeleteMember": ({ name }) => remove(all, name, "member") && {},
    ...loginCalls(world, caller),
  };
}

function loginCalls(world, caller) {
  const customer = world.role.startsWith("customer") ? "acme" : "";
  const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0";
  const sessions = [
    {
      name: "sessions/1a2b3c4d5e6f7081",
      member: caller,
      customer,
      createTime: iso(Date.now() - 3 * HOUR),
      lastUseTime: iso(Date.now() - 4e3),
      expireTime: iso(Date.now() + 9 * HOUR),
      address: "10.9.0.17",
      client: firefox,
      current: true,
    },
    {
      name: "sessions/77aa01be22cc90d1",
      member: world.role === "operator" ? "bob" : caller,
      customer,
      createTime: iso(Date.now() - 11 * HOUR),
      lastUseTime: iso(Date.now() - 25 * 6e4),
      expireTime: iso(Date.now() + HOUR),
      address: "10.9.0.40",
      client: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605 Safari/604.1",
    },
  ];
  const keys = [
    {
      name: "apiKeys/0d3f9a",
      member: caller,
      customer,
      role: world.role === "operator" ? "ROLE_VIEWER" : `ROLE_${world.role.toUpperCase().replace("-", "_")}`,
      label: "nightly report",
      createTime: iso(Date.now() - 40 * DAY),
      lastUseTime: iso(Date.now() - 7 * HOUR),
      expireTime: iso(Date.now() + 50 * DAY),
    },
  ];
  return {
    "SessionService/ListSessions": () => ({ sessions }),
    "SessionService/EndSession": ({ name }) => remove(sessions, name, "session") && {},
    "SessionService/ListApiKeys": () => ({ apiKeys: keys }),
    "SessionService/CreateApiKey": ({ label, role, lifetime }) => {
      const apiKey = {
        name: `apiKeys/${crypto.randomUUID().slice(0, 6)}`,
        member: caller,
        customer,
        role,
        label,
        createTime: iso(Date.now()),
        expireTime: iso(Date.now() + Number.parseInt(lifetime) * 1_000),
      };
      keys.unshift(apiKey);
      return { key: `rwk_${"7e".repeat(32)}`, apiKey };
    },
    "SessionService/DeleteApiKey": ({ name }) => remove(keys, name, "API key") && {},
    ...sshCalls(caller),
  };
}

function sshCalls(caller) {
  const ssh = [
    {
      fingerprint: "SHA256:uN2r1cXkU0eJ3mPq8s7vYbZ5wAfHtLdGoKxQiTnRsWe",
      publicKey: "ssh-ed25519 AAAA",
      member: caller,
      createTime: iso(Date.now() - 80 * DAY),
    },
  ];
  return {
    "ConsoleService/ListSshKeys": () => ({ keys: ssh }),
    "ConsoleService/AddSshKey": ({ publicKey }) => {
      const key = {
        fingerprint: `SHA256:${crypto.randomUUID().replaceAll("-", "")}abcdefghijk`,
        publicKey,
        member: caller,
        createTime: iso(Date.now()),
      };
      ssh.push(key);
      return key;
    },
    "ConsoleService/RemoveSshKey": ({ fingerprint }) => {
      ssh.splice(
        ssh.findIndex((key) => key.fingerprint === fingerprint),
        1,
      );
      return {};
    },
  };
}
