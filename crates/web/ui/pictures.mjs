// Takes pictures of pages of the console in headless Chromium, with an invented hall:
//
//   node pictures.mjs --out FOLDER [--nodes 300] [--theme light] [--width 1440] [--height 900] [--role operator] NAME:PATH...
//
// Each picture is FOLDER/NAME.png, taken when the page has received everything. In PATH, FIRST is the name of the first node.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options, positionals: pages } = parseArgs({
  allowPositionals: true,
  options: {
    out: { type: "string" },
    nodes: { type: "string", default: "300" },
    theme: { type: "string", default: "dark" },
    width: { type: "string", default: "1440" },
    height: { type: "string", default: "900" },
    role: { type: "string", default: "operator" },
  },
});
if (!options.out || pages.length === 0 || !["dark", "light"].includes(options.theme)) {
  throw new Error("usage: pictures.mjs --out FOLDER [--nodes N] [--theme dark|light] [--width W] [--height H] [--role ROLE] NAME:PATH...");
}

/** A program, a page or a driver may take this long. */
const LIMIT_MS = 120_000;
const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--hide-scrollbars",
  `--blink-settings=preferredColorScheme=${options.theme === "dark" ? 0 : 1}`,
];
/** What a page shows until it has received everything. Answers when it does not show it any more, two frames later. */
const COMPLETE = `
  const done = arguments[0];
  const look = () => {
    const isWaiting = /Loading|Receiving|Reading the/.test(document.querySelector("main")?.innerText ?? "Loading");
    const isDrawn = document.querySelector("main h1") !== null && document.querySelector(".skeleton, [aria-busy=true]") === null;
    if (isWaiting || !isDrawn) {
      setTimeout(look, 100);
    } else {
      setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true))), 500);
    }
  };
  look();
`;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until a program listens on its port. */
async function listening(program, port) {
  const end = Date.now() + LIMIT_MS;
  for (;;) {
    try {
      await fetch(`http://127.0.0.1:${port}/`);
      return;
    } catch (error) {
      if (Date.now() > end || program.exitCode !== null) {
        throw new Error(`${program.spawnargs.join(" ")} does not listen on port ${port}`, { cause: error });
      }
      await pause(100);
    }
  }
}

const here = dirname(fileURLToPath(import.meta.url));
const [consolePort, driverPort] = [await freePort(), await freePort()];
const profile = mkdtempSync(join(tmpdir(), "rackwright-pictures-"));
const quiet = { stdio: ["ignore", "ignore", "inherit"] };
const hall = ["--mock", "--no-login", "--nodes", options.nodes, "--role", options.role, "--port", String(consolePort)];
const programs = [
  spawn(process.execPath, [join(here, "dev.mjs"), ...hall], quiet),
  spawn("chromedriver", [`--port=${driverPort}`], quiet),
];

/** A command of WebDriver. */
async function command(path, body, method = "POST") {
  const content = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await fetch(`http://127.0.0.1:${driverPort}${path}`, { method, ...content });
  const { value } = await response.json();
  if (!response.ok) {
    throw new Error(`${path}: ${value.message}`);
  }
  return value;
}

try {
  await Promise.all([listening(programs[0], consolePort), listening(programs[1], driverPort)]);
  const chrome = { args: [...FLAGS, `--user-data-dir=${profile}`] };
  const wanted = { browserName: "chrome", timeouts: { script: LIMIT_MS }, "goog:chromeOptions": chrome };
  const { sessionId } = await command("/session", { capabilities: { alwaysMatch: wanted } });
  const session = `/session/${sessionId}`;
  const size = { width: Number(options.width), height: Number(options.height), deviceScaleFactor: 1, mobile: false };
  await command(`${session}/goog/cdp/execute`, { cmd: "Emulation.setDeviceMetricsOverride", params: size });
  mkdirSync(options.out, { recursive: true });
  const first = `gpu-${"1".padStart(options.nodes.length, "0")}`;
  for (const page of pages) {
    const [name, path] = [page.slice(0, page.indexOf(":")), page.slice(page.indexOf(":") + 1)];
    await command(`${session}/url`, { url: `http://127.0.0.1:${consolePort}${path.replace("FIRST", first)}` });
    await command(`${session}/execute/async`, { script: COMPLETE, args: [] });
    const picture = await command(`${session}/screenshot`, undefined, "GET");
    writeFileSync(join(options.out, `${name}.png`), Buffer.from(picture, "base64"));
  }
  await command(session, undefined, "DELETE");
} finally {
  programs.forEach((program) => program.kill());
  rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
}
