// Consoles of the made-up world: WebSockets as `GET /v1/nodes/NODE/console`, and recorded boots.
import { createHash } from "node:crypto";
import { iso } from "./dev-world.mjs";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const PATH = /^\/v1\/nodes\/([^/]+)\/console(?:\?(.*))?$/;
const BOOT = [
  "\x1b[2J\x1b[HAMI BIOS 1.05.03  \x1b[7m Press DEL to enter setup \x1b[0m",
  "POST: memory 2048 GiB \x1b[32mOK\x1b[0m, 8 GPUs \x1b[32mOK\x1b[0m, slot 7 \x1b[31mno card\x1b[0m",
  "iPXE 1.21.1 -- \x1b[36mOpen Source Network Boot Firmware\x1b[0m",
  "net0: 58:a2:e1:00:00:01 using ixgbe, link up",
  "\x1b[38;2;255;140;0mRackwright\x1b[0m: writing the image",
  "[    0.000000] Linux version 6.12.9 (build@rackwright)",
  "[    3.141592] nvme nvme0: 128/0/0 default/read/poll queues",
  "[   11.271828] mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged",
];

function frame(opcode, payload) {
  const head = payload.length < 126 ? Buffer.from([0x80 | opcode, payload.length]) : Buffer.alloc(4);
  if (payload.length >= 126) {
    head.writeUInt16BE(((0x80 | opcode) << 8) | 126, 0);
    head.writeUInt16BE(payload.length, 2);
  }
  return Buffer.concat([head, payload]);
}

/** The whole frames at the beginning of `bytes`, and the rest. Frames of clients are masked. */
function unframe(bytes) {
  const frames = [];
  for (;;) {
    const isLong = bytes.length > 1 && (bytes[1] & 127) === 126;
    const start = isLong ? 8 : 6;
    if (bytes.length < start) {
      return [frames, bytes];
    }
    const length = isLong ? bytes.readUInt16BE(2) : bytes[1] & 127;
    if (bytes.length < start + length) {
      return [frames, bytes];
    }
    const mask = bytes.subarray(start - 4, start);
    const payload = Buffer.from(bytes.subarray(start, start + length).map((byte, at) => byte ^ mask[at % 4]));
    frames.push([bytes[0] & 15, payload]);
    bytes = bytes.subarray(start + length);
  }
}

/** Answers a request for a WebSocket. A machine prints its boot, then repeats what is typed. */
export function openConsole(request, socket, role) {
  const [, id, query = ""] = PATH.exec(request.url) ?? [];
  const mayType = !query.includes("read_only");
  if (id === undefined || role === "auditor" || (mayType && role === "viewer")) {
    socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    return;
  }
  const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + GUID).digest("base64");
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n` +
      "Sec-WebSocket-Protocol: rackwright.console.v1\r\n\r\n",
  );
  const show = (text) => socket.writable && socket.write(frame(2, Buffer.from(text)));
  const notice = (text) => socket.write(frame(1, Buffer.from(JSON.stringify({ notice: text }))));
  if (!mayType) {
    notice("bob types here at the moment");
  }
  let line = 0;
  const timer = setInterval(() => {
    show(line < BOOT.length ? `${BOOT[line]}\r\n` : line === BOOT.length ? `\r\n${id} login: ` : "");
    line += 1;
  }, 150);
  let rest = Buffer.alloc(0);
  socket.on("data", (bytes) => {
    const [frames, left] = unframe(Buffer.concat([rest, bytes]));
    rest = left;
    for (const [opcode, payload] of frames) {
      if (opcode === 8) {
        socket.end(frame(8, payload));
      } else if (opcode === 2 && mayType) {
        show(payload.toString().replaceAll("\r", `\r\n${id} login: `));
      }
    }
  });
  socket.on("error", () => undefined);
  socket.on("close", () => clearInterval(timer));
}

export function consoleCalls() {
  return {
    "ConsoleService/ListConsoleBoots": () => ({
      boots: [1, 2, 3].map((boot) => ({
        boot,
        powerOnTime: boot === 1 ? undefined : iso(Date.now() - (4 - boot) * 9e7),
        firstOutputTime: iso(Date.now() - (4 - boot) * 9e7 + 4e3),
        sizeBytes: String(41_000 * boot),
      })),
    }),
  };
}

export const consoleStreams = {
  "ConsoleService/ReadConsoleLog": ({ boot }, send, end) => {
    for (const line of [`boot ${boot}`, ...BOOT]) {
      send({ time: iso(Date.now() - 9e7), output: Buffer.from(`${line}\r\n`).toString("base64") });
    }
    end();
    return () => undefined;
  },
};
