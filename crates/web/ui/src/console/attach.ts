import { call, pause } from "../client";
import { untilUp } from "../connection";
import { ApiError } from "../errors";
import { signOutHere } from "../session";

/** "type": takes the keyboard if it is free. "take-over": takes it from another member. */
export type Mode = "watch" | "type" | "take-over";

export type Line =
  | { state: "connecting" }
  | { state: "open"; mode: Mode }
  /** The next try comes by itself. */
  | { state: "lost"; why: string }
  | { state: "ended"; why: string };

export interface Handlers {
  line(line: Line): void;
  output(bytes: Uint8Array): void;
  notice(text: string): void;
  /** Sends bytes of the keyboard; null: the connection is away. */
  keyboard(send: ((bytes: Uint8Array) => void) | null): void;
}

const PROTOCOL = "rackwright.console.v1";
/** The server accepts twice as much. */
const MESSAGE_MAX = 32 * 1024;
const NORMAL = 1000;
const STATUS = 4000;
const UNAUTHENTICATED = STATUS + 16;
/** Invalid argument, not found, permission denied, unimplemented: a further try has the same end. */
const FINAL = new Set([STATUS + 3, STATUS + 5, STATUS + 7, STATUS + 12, UNAUTHENTICATED]);

interface End {
  wasOpen: boolean;
  code: number;
  reason: string;
}

/** Attaches to a node's console until `signal` ends it, and connects again after losses. */
export async function attach(node: string, wanted: Mode, on: Handlers, signal: AbortSignal): Promise<void> {
  let mode = wanted;
  for (let failures = 0; !signal.aborted; failures += 1) {
    on.line({ state: "connecting" });
    const end = await connect(node, mode, on, signal);
    on.keyboard(null);
    if (signal.aborted) {
      return;
    }
    if (end.code === UNAUTHENTICATED) {
      signOutHere();
    }
    if (end.wasOpen) {
      failures = 0;
      if (end.code === NORMAL || FINAL.has(end.code)) {
        on.line({ state: "ended", why: end.reason || "the console has ended" });
        return;
      }
      mode = mode === "take-over" ? "type" : mode;
      on.line({ state: "lost", why: end.reason || "the connection was lost" });
    } else {
      const refusal = await whyRefused(node, signal);
      if (refusal !== null && !refusal.isTransient) {
        on.line({ state: "ended", why: refusal.message });
        return;
      }
      // The keyboard is not taken from another member again without a click.
      const isTaken = mode !== "watch" && refusal === null;
      const why = isTaken ? "another member may have the keyboard now" : "the console did not accept the connection";
      mode = isTaken ? "watch" : mode;
      on.line({ state: "lost", why: refusal?.message ?? why });
    }
    await untilUp(signal);
    await pause(failures, signal);
  }
}

/** A browser hides the answer to a refused WebSocket. This call has the same checks of the caller and the node. */
async function whyRefused(node: string, signal: AbortSignal): Promise<ApiError | null> {
  try {
    await call("ConsoleService/ListConsoleBoots", { node }, signal);
    return null;
  } catch (error) {
    return error instanceof ApiError ? error : null;
  }
}

function address(node: string, mode: Mode): string {
  const query = { watch: "?read_only=true", type: "", "take-over": "?take_over=true" }[mode];
  const path = node.split("/").map(encodeURIComponent).join("/");
  return `${window.location.origin.replace(/^http/, "ws")}/v1/${path}/console${query}`;
}

/** One connection, until its end. */
function connect(node: string, mode: Mode, on: Handlers, signal: AbortSignal): Promise<End> {
  return new Promise((resolve) => {
    const socket = new WebSocket(address(node, mode), PROTOCOL);
    socket.binaryType = "arraybuffer";
    let wasOpen = false;
    const leave = () => socket.close(NORMAL);
    signal.addEventListener("abort", leave, { once: true });
    socket.onopen = () => {
      wasOpen = true;
      on.line({ state: "open", mode });
      on.keyboard((bytes) => send(socket, bytes));
    };
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (typeof data === "string") {
        on.notice((JSON.parse(data) as { notice?: string }).notice ?? "");
      } else {
        on.output(new Uint8Array(data));
      }
    };
    socket.onclose = ({ code, reason }) => {
      signal.removeEventListener("abort", leave);
      resolve({ wasOpen, code, reason });
    };
  });
}

function send(socket: WebSocket, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length && socket.readyState === WebSocket.OPEN; at += MESSAGE_MAX) {
    socket.send(bytes.slice(at, at + MESSAGE_MAX));
  }
}
