import type { Discovery, Finding } from "../api";
import { short } from "../names";
import type { Tone, Word } from "../words";

/** In the order in which the CLI counts them. */
export const FINDING_STATES = [
  "new",
  "moved",
  "conflict",
  "login-needed",
  "login-refused",
  "unreadable",
  "unreachable",
  "known",
  "enrolled",
  "same",
  "not-redfish",
  "read",
];

const ADVICE: Record<string, string> = {
  new: "enrol it",
  moved: "enrol it to update the address of the node",
  conflict: "correct the UUID in the BIOS setup or the BMC, or delete the node that is recorded twice",
  "login-needed": "start a discovery with a login",
  "login-refused": "start a discovery with another login; note that BMCs lock accounts",
  unreadable: "rackwright bmc probe shows what the BMC answers",
  unreachable: "check cable and address",
};

const TONES: Record<string, Tone> = {
  new: "good",
  enrolled: "good",
  moved: "busy",
  "login-needed": "busy",
  conflict: "bad",
  "login-refused": "bad",
  unreadable: "bad",
  unreachable: "bad",
};

export function findingState(state: string | undefined): Word {
  const tone = TONES[state ?? ""] ?? "dim";
  return { word: state || "unknown", tone, key: tone };
}

export function advice(state: string | undefined): string {
  return ADVICE[state ?? ""] ?? "";
}

export function phase({ phase: word, message }: Discovery): Word {
  const tone = word === "done" ? (message ? "bad" : "good") : "busy";
  return { word: word || "unknown", tone, key: tone };
}

/** `3 new, 12 known` */
export function countsText({ counts = {} }: Discovery): string {
  const parts = FINDING_STATES.filter((state) => Number(counts[state] ?? 0) > 0).map(
    (state) => `${counts[state]} ${state}`,
  );
  return parts.join(", ") || "nothing found";
}

/** Without `https://`, which nearly all addresses have. */
export function shortAddress(address: string | undefined): string {
  return (address ?? "").replace(/^https:\/\//, "");
}

export function idOf(discovery: Discovery): string {
  return short("discoveries", discovery.name);
}

/** `r01 u12` */
export function placeText({ rack, unit }: Finding): string {
  return [rack, unit ? `u${unit}` : ""].filter(Boolean).join(" ");
}

export function canEnrol({ state }: Finding): boolean {
  return state === "new" || state === "moved";
}
