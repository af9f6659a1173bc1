import type { Methods, Mutation, Streams, Upload } from "./api";
import { deadConnection, reportAnswer, reportLoss, untilUp } from "./connection";
import { ApiError, readError, readRestError, unreachable } from "./errors";
import { signOutHere } from "./session";

export type Method = keyof Methods;
export type Stream = keyof Streams;

const TIMEOUT_MS = 30_000;
/** Tries of one change; all have the same idempotency key. */
const CHANGE_TRIES = 4;
const BACKOFF_MS = [500, 1_000, 2_000, 5_000, 10_000, 20_000];
const END_OF_STREAM = 2;
const HEADER_BYTES = 5;

async function post(method: string, type: string, body: BodyInit, signal: AbortSignal): Promise<Response> {
  try {
    const headers: Record<string, string> = { "Content-Type": type };
    if (type === "application/json") {
      headers["Connect-Timeout-Ms"] = String(TIMEOUT_MS);
    }
    const response = await fetch(`/rackwright.v1.${method}`, { method: "POST", headers, body, signal });
    reportAnswer();
    return response;
  } catch (error) {
    if (error instanceof DOMException && error.name === "TimeoutError") {
      throw new ApiError(method, "deadline_exceeded", "the control plane did not answer in time");
    }
    if (signal.aborted) {
      throw error;
    }
    reportLoss();
    throw unreachable(method);
  }
}

async function errorOf(method: string, response: Response): Promise<ApiError> {
  const body = await response.json().catch(() => null);
  const error = readError(method, body, response.status);
  if (response.status === 401 || error.code === "unauthenticated") {
    signOutHere();
  }
  return error;
}

/** Calls a method that gives one response. */
export async function call<M extends Method>(
  method: M,
  request: Methods[M]["request"],
  signal?: AbortSignal,
): Promise<Methods[M]["response"]> {
  const limit = AbortSignal.timeout(TIMEOUT_MS + 2_000);
  const both = signal ? AbortSignal.any([signal, limit]) : limit;
  const response = await post(method, "application/json", JSON.stringify(request), both);
  if (!response.ok) {
    throw await errorOf(method, response);
  }
  return (await response.json()) as Methods[M]["response"];
}

/** Appends bytes to an upload: "uploads/{uuid}". The response is the upload. */
export async function appendTo(upload: string, offset: number, bytes: Blob, signal: AbortSignal): Promise<Upload> {
  const method = "ImageService/WriteUpload";
  const headers = { "Content-Type": "application/octet-stream" };
  const request = { method: "PUT", headers, body: bytes, signal };
  const response = await fetch(`/v1/${upload}:write?offset=${offset}`, request).catch((error: unknown) => {
    if (signal.aborted) {
      throw error;
    }
    reportLoss();
    throw unreachable(method);
  });
  reportAnswer();
  if (response.ok) {
    return (await response.json()) as Upload;
  }
  if (response.status === 401) {
    signOutHere();
  }
  throw readRestError(method, await response.json().catch(() => null), response.status);
}

/** A name for one change: repeated calls with it make the change once. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

type Change = { [M in Method]: Methods[M]["request"] extends { mutation?: Mutation } ? M : never }[Method];

/** Calls a method that changes something. A lost response is asked for again with the same idempotency key. */
export async function change<M extends Change>(
  method: M,
  request: Methods[M]["request"],
): Promise<Methods[M]["response"]> {
  const given = request as { mutation?: Mutation };
  const mutation: Mutation = { idempotencyKey: newKey(), ...given.mutation };
  for (let tried = 1; ; tried += 1) {
    try {
      return await call(method, { ...request, mutation });
    } catch (error) {
      const isLost = error instanceof ApiError && ["unavailable", "deadline_exceeded"].includes(error.code);
      if (!isLost || tried === CHANGE_TRIES) {
        throw error;
      }
      await pause(tried - 1, new AbortController().signal);
    }
  }
}

/** Reads every page of a list. */
export async function pages<M extends Method, T>(
  method: M,
  request: Methods[M]["request"],
  items: (response: Methods[M]["response"]) => T[] | undefined,
  signal?: AbortSignal,
): Promise<T[]> {
  const all: T[] = [];
  let pageToken = "";
  do {
    const response = await call(method, { ...request, pageToken } as Methods[M]["request"], signal);
    all.push(...(items(response) ?? []));
    pageToken = (response as { nextPageToken?: string }).nextPageToken ?? "";
  } while (pageToken !== "");
  return all;
}

export interface Follower<T> {
  message(message: T): void;
  /** A connection begins: the stream starts again from its request. */
  begin?(): void;
  /** The messages that have come together are all delivered. */
  drained?(): void;
  /** The stream cannot go on. */
  failed?(error: ApiError): void;
  /** The stream is complete. Without this, an end counts as a lost connection. */
  ended?(): void;
}

/** Follows a stream until `signal` ends it: reconnects after losses, and stops at errors that a retry cannot end. */
export async function follow<S extends Stream>(
  stream: S,
  request: () => Streams[S]["request"],
  follower: Follower<Streams[S]["response"]>,
  signal: AbortSignal,
): Promise<void> {
  for (let failures = 0; !signal.aborted;) {
    try {
      follower.begin?.();
      const both = AbortSignal.any([signal, deadConnection()]);
      await readStream(stream, request(), follower, both, () => {
        failures = 0;
      });
      if (follower.ended) {
        follower.ended();
        return;
      }
    } catch (error) {
      if (error instanceof ApiError && !error.isTransient) {
        follower.failed?.(error);
        return;
      }
    }
    await untilUp(signal);
    await pause(failures, signal);
    failures += 1;
  }
}

/** Waits longer after each failure, and never exactly as long as other consoles. */
export function pause(failures: number, signal: AbortSignal): Promise<void> {
  const most = BACKOFF_MS[Math.min(failures, BACKOFF_MS.length - 1)] ?? 0;
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, most * (0.5 + Math.random() / 2));
    signal.addEventListener(
      "abort",
      () => {
        window.clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

function envelope(message: unknown): Uint8Array<ArrayBuffer> {
  const body = new TextEncoder().encode(JSON.stringify(message));
  const bytes = new Uint8Array(HEADER_BYTES + body.length);
  new DataView(bytes.buffer).setUint32(1, body.length);
  bytes.set(body, HEADER_BYTES);
  return bytes;
}

async function readStream<T>(
  stream: Stream,
  request: unknown,
  follower: Follower<T>,
  signal: AbortSignal,
  onMessage: () => void,
): Promise<void> {
  const response = await post(stream, "application/connect+json", envelope(request), signal);
  if (!response.ok || response.body === null) {
    throw await errorOf(stream, response);
  }
  const reader = response.body.getReader();
  const parts = new Envelopes();
  for (;;) {
    // A broken stream alone is no lost connection: the next try shows which of the two it is.
    const { done, value } = await reader.read().catch(() => {
      throw unreachable(stream);
    });
    if (done) {
      throw unreachable(stream);
    }
    for (const [flags, text] of parts.take(value)) {
      const message: unknown = JSON.parse(text);
      if (flags & END_OF_STREAM) {
        endOf(stream, message as { error?: unknown });
        return;
      }
      onMessage();
      follower.message(message as T);
    }
    follower.drained?.();
  }
}

function endOf(stream: string, end: { error?: unknown }): void {
  if (end.error === undefined) {
    return;
  }
  const error = readError(stream, end.error, 200);
  if (error.code === "unauthenticated") {
    signOutHere();
  }
  throw error;
}

/** Cuts a stream of bytes into envelopes. */
class Envelopes {
  private rest = new Uint8Array(0);
  private readonly decoder = new TextDecoder();

  *take(chunk: Uint8Array): Generator<[number, string]> {
    let bytes = chunk;
    if (this.rest.length > 0) {
      bytes = new Uint8Array(this.rest.length + chunk.length);
      bytes.set(this.rest);
      bytes.set(chunk, this.rest.length);
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const end = at + HEADER_BYTES + view.getUint32(at + 1);
      if (end > bytes.length) {
        break;
      }
      yield [view.getUint8(at), this.decoder.decode(bytes.subarray(at + HEADER_BYTES, end))];
      at = end;
    }
    this.rest = bytes.slice(at);
  }
}
