/** Cube roots of the first 64 primes: the first 32 bits of their fractions. */
const ROUND = new Uint32Array(64);
/** Square roots of the first 8 primes, likewise. */
const START = new Uint32Array(8);

for (let prime = 2, found = 0; found < 64; prime += 1) {
  let isPrime = true;
  for (let divisor = 2; divisor * divisor <= prime; divisor += 1) {
    isPrime &&= prime % divisor !== 0;
  }
  if (isPrime) {
    ROUND[found] = (prime ** (1 / 3) % 1) * 2 ** 32;
    if (found < 8) {
      START[found] = (prime ** (1 / 2) % 1) * 2 ** 32;
    }
    found += 1;
  }
}

const ROUND_SIGNED = Int32Array.from(ROUND);
const BLOCK = 64;
const SLICE = 4 << 20;

/** The SHA-256 of a file in hex digits. The browser's own digest needs the whole file in memory; this one reads slices. */
export async function sha256(file: Blob, progress: (bytes: number) => void, signal: AbortSignal): Promise<string> {
  const state = START.slice();
  const words = new Int32Array(BLOCK);
  // Slices are whole blocks, except for the last one.
  for (let at = 0; at + BLOCK <= file.size; at += SLICE) {
    signal.throwIfAborted();
    const end = Math.min(at + SLICE, file.size - (file.size % BLOCK));
    const slice = new DataView(await file.slice(at, end).arrayBuffer());
    for (let block = 0; block < slice.byteLength; block += BLOCK) {
      compress(state, words, slice, block);
    }
    progress(end);
  }
  const rest = await file.slice(file.size - (file.size % BLOCK)).arrayBuffer();
  const last = new Uint8Array(rest.byteLength + 9 > BLOCK ? 2 * BLOCK : BLOCK);
  last.set(new Uint8Array(rest));
  last[rest.byteLength] = 0x80;
  const view = new DataView(last.buffer);
  view.setBigUint64(last.length - 8, BigInt(file.size) * 8n);
  for (let block = 0; block < last.length; block += BLOCK) {
    compress(state, words, view, block);
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}

/** Adds one block to the state (FIPS 180-4, section 6.2.2). */
function compress(state: Uint32Array, w: Int32Array, data: DataView, at: number): void {
  for (let t = 0; t < 16; t += 1) {
    w[t] = data.getUint32(at + 4 * t);
  }
  for (let t = 16; t < 64; t += 1) {
    const x = w[t - 15]!;
    const y = w[t - 2]!;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[t] = (((w[t - 16]! + s0) | 0) + ((w[t - 7]! + s1) | 0)) | 0;
  }
  let a = state[0]! | 0;
  let b = state[1]! | 0;
  let c = state[2]! | 0;
  let d = state[3]! | 0;
  let e = state[4]! | 0;
  let f = state[5]! | 0;
  let g = state[6]! | 0;
  let h = state[7]! | 0;
  for (let t = 0; t < 64; t += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = ((((h + s1) | 0) + ((e & f) ^ (~e & g))) | 0) + ((ROUND_SIGNED[t]! + w[t]!) | 0) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  const added = [a, b, c, d, e, f, g, h];
  for (let index = 0; index < 8; index += 1) {
    state[index] = state[index]! + added[index]!;
  }
}
