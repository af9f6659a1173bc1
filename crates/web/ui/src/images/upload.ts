import { signal } from "@preact/signals";
import type { Operation, StartUploadRequest } from "../api";
import { appendTo, call, change, newKey, pause } from "../client";
import { untilUp } from "../connection";
import { asApiError, type ApiError } from "../errors";
import { sha256 } from "./sha256";

/** The fields of a new image. */
export interface Wanted extends Pick<StartUploadRequest, "minisignSignature" | "osId" | "osVersion" | "kernel"> {
  imageId: string;
  /** Empty: computed from the file, which proves the transfer, not the origin. */
  sha256: string;
}

type Phase = "hashing" | "sending" | "paused" | "waiting" | "finishing" | "importing" | "failed";

export interface State {
  phase: Phase;
  /** Bytes of this phase that are done. */
  done: number;
  error: ApiError | null;
  operation: Operation | null;
}

/** One request has this many bytes: a refusal or a loss costs no more. */
const PART = 8 << 20;
/** Tries of a part that is refused: the former connection may still write, or the offset may be out of date. */
const REFUSALS_MAX = 5;
const FINAL = new Set(["permission_denied", "unauthenticated", "not_found"]);
const STORED = "rackwright.upload";

/** The uploads of this page. They go on while other pages are shown. */
export const uploads = signal<Upload[]>([]);

export function startUpload(file: File, wanted: Wanted): void {
  uploads.value = [...uploads.value, new Upload(file, wanted)];
}

window.addEventListener("beforeunload", (event) => {
  if (uploads.value.some((upload) => upload.isAtWork())) {
    event.preventDefault();
  }
});

export class Upload {
  readonly state = signal<State>({ phase: "hashing", done: 0, error: null, operation: null });
  private readonly stop = new AbortController();
  /** Aborted by a pause. */
  private part = new AbortController();
  private resumed: () => void = () => undefined;

  constructor(
    readonly file: File,
    readonly wanted: Wanted,
  ) {
    this.run().catch((error: unknown) => {
      if (!this.stop.signal.aborted) {
        // The next try is a new upload.
        localStorage.removeItem(STORED);
        this.set({ phase: "failed", error: asApiError(error, "ImageService/StartUpload") });
      }
    });
  }

  /** Leaving the page would end it. */
  isAtWork(): boolean {
    return !["failed", "importing"].includes(this.state.value.phase);
  }

  pause(): void {
    this.set({ phase: "paused" });
    this.part.abort();
  }

  resume(): void {
    this.set({ phase: "sending", error: null });
    this.resumed();
  }

  /** Ends the upload, or takes a finished one off the page. */
  remove(): void {
    this.stop.abort();
    this.part.abort();
    this.resumed();
    uploads.value = uploads.value.filter((other) => other !== this);
  }

  private set(changes: Partial<State>): void {
    this.state.value = { ...this.state.value, ...changes };
  }

  private async run(): Promise<void> {
    const { file, wanted, stop } = this;
    const digest =
      wanted.sha256.trim().toLowerCase() || (await sha256(file, (done) => this.set({ done }), stop.signal));
    const key = keyOf(wanted.imageId, digest);
    const request = { ...wanted, sha256: digest, sizeBytes: String(file.size), mutation: { idempotencyKey: key } };
    const upload = await change("ImageService/StartUpload", request);
    const name = upload.name ?? "";
    await this.send(name, Number(upload.receivedBytes ?? 0));
    this.set({ phase: "finishing" });
    const operation = await change("ImageService/FinishUpload", { name, mutation: { idempotencyKey: `${key}-finish` } });
    localStorage.removeItem(STORED);
    this.set({ phase: "importing", operation });
  }

  /** Sends the file from `offset` on. After a loss, the control plane says where to continue. */
  private async send(name: string, offset: number): Promise<void> {
    this.set({ phase: "sending", done: offset });
    let failures = 0;
    for (let at = offset; at < this.file.size;) {
      await this.whilePaused();
      try {
        this.part = new AbortController();
        const bytes = this.file.slice(at, at + PART);
        at = Number((await appendTo(name, at, bytes, this.part.signal)).receivedBytes ?? 0);
        failures = 0;
        this.set({ done: at, error: null, ...(this.state.value.phase === "waiting" && { phase: "sending" }) });
      } catch (error) {
        await this.afterFailure(error, failures);
        failures += 1;
        at = Number((await this.received(name)) ?? at);
        this.set({ done: at });
      }
    }
  }

  private async whilePaused(): Promise<void> {
    if (this.state.value.phase === "paused") {
      await new Promise<void>((resolve) => {
        this.resumed = resolve;
      });
    }
    this.stop.signal.throwIfAborted();
  }

  /** Waits until it makes sense to send again. */
  private async afterFailure(error: unknown, failures: number): Promise<void> {
    this.stop.signal.throwIfAborted();
    if (this.state.value.phase === "paused") {
      return;
    }
    const fault = asApiError(error, "ImageService/WriteUpload");
    if (!fault.isTransient && (FINAL.has(fault.code) || failures >= REFUSALS_MAX)) {
      throw fault;
    }
    this.set({ phase: "waiting", error: fault });
    await untilUp(this.stop.signal);
    await pause(failures, this.stop.signal);
    this.stop.signal.throwIfAborted();
  }

  private async received(name: string): Promise<string | undefined> {
    try {
      return (await call("ImageService/GetUpload", { name }, this.stop.signal)).receivedBytes ?? "0";
    } catch (error) {
      if (asApiError(error, "ImageService/GetUpload").isTransient) {
        return undefined;
      }
      throw error;
    }
  }
}

/** The key of an upload. The same file chosen again after a reload of the page continues its upload. */
function keyOf(imageId: string, digest: string): string {
  const of = `${imageId} ${digest}`;
  const stored = JSON.parse(localStorage.getItem(STORED) ?? "{}") as { of?: string; key?: string };
  const key = stored.of === of && stored.key ? stored.key : newKey();
  localStorage.setItem(STORED, JSON.stringify({ of, key }));
  return key;
}
