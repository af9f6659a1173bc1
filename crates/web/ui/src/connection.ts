import { signal } from "@preact/signals";

/** Whether the control plane answers. */
export type Connection = { isUp: true } | { isUp: false; since: number; retryAt: number };

export const connection = signal<Connection>({ isUp: true });
/** When the control plane answered last. */
export let answeredAt = Date.now();

const PROBE_MS = 30_000;
const PROBE_TIMEOUT_MS = 8_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

let wakers: (() => void)[] = [];
let streamsToBreak = new AbortController();
let retryTimer: number | undefined;
let tries = 0;

/** Aborted when the connection is found dead: a stream on it would wait forever. */
export function deadConnection(): AbortSignal {
  return streamsToBreak.signal;
}

export function reportAnswer(): void {
  answeredAt = Date.now();
  if (connection.value.isUp) {
    return;
  }
  window.clearTimeout(retryTimer);
  retryTimer = undefined;
  tries = 0;
  connection.value = { isUp: true };
  const waiting = wakers;
  wakers = [];
  waiting.forEach((wake) => wake());
}

export function reportLoss(): void {
  const now = Date.now();
  if (connection.value.isUp) {
    streamsToBreak.abort();
    streamsToBreak = new AbortController();
    connection.value = { isUp: false, since: now, retryAt: now };
  }
  if (retryTimer === undefined) {
    const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)] ?? 0;
    tries += 1;
    const since = connection.value.isUp ? now : connection.value.since;
    connection.value = { isUp: false, since, retryAt: now + pause };
    retryTimer = window.setTimeout(probeNow, pause);
  }
}

/** Ends when the control plane answers again, or at once. */
export function untilUp(signal: AbortSignal): Promise<void> {
  if (connection.value.isUp) {
    return Promise.resolve();
  }
  return new Promise((resolve) => {
    wakers.push(resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Asks for a small file. An API call would keep an unattended session alive. */
export function probeNow(): void {
  window.clearTimeout(retryTimer);
  retryTimer = undefined;
  const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
  fetch("/icon.svg", { cache: "no-store", signal }).then(
    (response) => (response.status < 500 ? reportAnswer() : reportLoss()),
    () => reportLoss(),
  );
}

function probeIfSeen(): void {
  if (!document.hidden && connection.value.isUp && Date.now() - answeredAt > PROBE_MS / 2) {
    probeNow();
  }
}

export function startProbing(): void {
  window.setInterval(probeIfSeen, PROBE_MS);
  document.addEventListener("visibilitychange", probeIfSeen);
  window.addEventListener("online", probeNow);
  window.addEventListener("offline", reportLoss);
}
