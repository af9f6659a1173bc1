import type { HandoverFile } from "../api";

const BLOCK = 512;
const encoder = new TextEncoder();

function header(name: string, size: number, time: number): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const put = (text: string, at: number) => block.set(encoder.encode(text), at);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, "0")}\0`;
  put(name, 0);
  put(octal(0o644, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(time, 11), 136);
  put("        ", 148);
  put("0", 156);
  put("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** The files in a tar archive, in a folder. */
export function tar(folder: string, files: HandoverFile[]): Blob {
  const time = Math.floor(Date.now() / 1_000);
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (const file of files) {
    const body = encoder.encode(file.text ?? "");
    const padding = new Uint8Array((BLOCK - (body.length % BLOCK)) % BLOCK);
    parts.push(header(`${folder}/${file.name ?? ""}`, body.length, time) as Uint8Array<ArrayBuffer>, body, padding);
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

/** Gives a file to the browser to save. */
export function save(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
