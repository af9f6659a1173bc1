// A server for work on the console: the files of ../dist, and the API from a made-up world or from a real rackwrightd.
//
//   node dev.mjs --mock [--nodes 300] [--no-site] [--no-login] [--role viewer|customer-admin|...] [--port 8080]
//   node dev.mjs --server https://127.0.0.1:7070 --cert member.pem --ca member.ca.pem [--port 8080]
//
// Consoles are there with --mock alone. Any token logs in. It is no part of the product: it has no TLS, and everybody who reaches it is the member.
import { readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { mockApi } from "./dev-calls.mjs";
import { openConsole } from "./dev-console.mjs";
import { World } from "./dev-world.mjs";

const { values: options } = parseArgs({
  options: {
    mock: { type: "boolean", default: false },
    nodes: { type: "string", default: "300" },
    role: { type: "string", default: "operator" },
    "no-site": { type: "boolean", default: false },
    "no-login": { type: "boolean", default: false },
    server: { type: "string" },
    cert: { type: "string" },
    ca: { type: "string" },
    port: { type: "string", default: "8080" },
  },
});

const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'";

const api = options.mock ? mockApi(Object.assign(new World(Number(options.nodes), options.role), { hasNoSite: options["no-site"] })) : proxy();

function proxy() {
  if (!options.server || !options.cert || !options.ca) {
    throw new Error("give --mock, or --server, --cert and --ca");
  }
  const pem = readFileSync(options.cert);
  let session;
  const connected = () => {
    if (session === undefined || session.closed || session.destroyed) {
      session = http2.connect(options.server, { ca: readFileSync(options.ca), cert: pem, key: pem });
      session.on("error", () => session.destroy());
    }
    return session;
  };
  return (request, response) => {
    const headers = { ":method": request.method, ":path": request.url };
    for (const name of ["content-type", "connect-timeout-ms", "range", "if-match"]) {
      if (request.headers[name]) {
        headers[name] = request.headers[name];
      }
    }
    const call = connected().request(headers);
    call.on("response", (given) => {
      const plain = Object.entries(given).filter(([name]) => !name.startsWith(":"));
      response.writeHead(given[":status"], Object.fromEntries(plain));
      call.pipe(response);
    });
    call.on("error", () => response.destroy());
    response.on("close", () => call.close());
    request.pipe(call);
  };
}

function isLoggedIn(request) {
  return /(^|; )rackwright-dev=1/.test(request.headers.cookie ?? "");
}

function json(response, status, body, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(body === null ? undefined : JSON.stringify(body));
}

function auth(request, response) {
  if (request.url === "/auth/methods") {
    return json(response, 200, { oidc: { name: "the lab" } });
  }
  // As after a login at the provider.
  if (request.url === "/auth/oidc") {
    response.writeHead(303, { Location: "/", "Set-Cookie": "rackwright-dev=1; Path=/; HttpOnly; SameSite=Lax" });
    return response.end();
  }
  if (request.url === "/auth/logout") {
    return json(response, 204, null, { "Set-Cookie": "rackwright-dev=; Path=/; Max-Age=0" });
  }
  let text = "";
  request.on("data", (part) => (text += part));
  request.on("end", () => {
    const { token } = JSON.parse(text || "{}");
    if (!token || token === "wrong") {
      return json(response, 401, { code: "unauthenticated", message: "the token is not valid, or was used before" });
    }
    return json(response, 204, null, { "Set-Cookie": "rackwright-dev=1; Path=/; HttpOnly; SameSite=Lax" });
  });
}

function file(request, response) {
  const path = new URL(request.url, "http://localhost").pathname;
  const isFile = /^\/[a-z-]+\.(js|css|svg)$/.test(path);
  try {
    const body = readFileSync(join(dist, isFile ? path : "index.html"));
    const type = TYPES[isFile ? extname(path) : ".html"];
    response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": POLICY, "Cache-Control": "no-cache" });
    response.end(body);
  } catch {
    response.writeHead(404);
    response.end();
  }
}

const server = http.createServer((request, response) => {
  const isApi = request.url.startsWith("/rackwright.v1.") || request.url.startsWith("/v1/");
  if (request.url.startsWith("/auth/")) {
    auth(request, response);
  } else if (!isApi) {
    file(request, response);
  } else if (options["no-login"] || isLoggedIn(request)) {
    api(request, response);
  } else {
    request.resume();
    json(response, 401, { code: "unauthenticated", message: "log in first" });
  }
});
server.on("upgrade", (request, socket) => {
  if (options.mock && (options["no-login"] || isLoggedIn(request))) {
    openConsole(request, socket, options.role);
  } else {
    socket.end("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
  }
});
server.listen(Number(options.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${options.port}/login#any`));
