import type { EraseCertificate, SigningKey } from "../api";
import type { Word } from "../words";

function decode(base64: string | undefined): Uint8Array<ArrayBuffer> {
  const text = atob((base64 ?? "").replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

function hex(base64: string | undefined): string {
  return Array.from(decode(base64), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The site's keys as hexadecimal text. */
export function siteKeys(keys: SigningKey[]): string[] {
  return keys.map((key) => hex(key.publicKey));
}

function judged(tone: Word["tone"], word: string): Word {
  return { word, tone, key: tone };
}

/** Verifies the signature of a certificate with the keys of the site. */
export async function verify(certificate: EraseCertificate, keys: string[]): Promise<Word> {
  const { signerPublicKey, signature, signedPayload } = certificate;
  if (!keys.includes(hex(signerPublicKey)) || !signature) {
    return judged("bad", "not signed by a key of the site");
  }
  try {
    const key = await crypto.subtle.importKey("raw", decode(signerPublicKey), "Ed25519", false, ["verify"]);
    const isRight = await crypto.subtle.verify("Ed25519", key, decode(signature), decode(signedPayload));
    return isRight ? judged("good", "valid") : judged("bad", "wrong");
  } catch {
    return judged("dim", "unknown: this browser has no Ed25519");
  }
}
