import { colour, paletteVersion } from "../theme";
import { NODE_STATES } from "../words";
import { useMemo } from "preact/hooks";

const CATEGORIES = 10;
/** Further categories have the same colours, mixed with that of the ground. */
const MIXED = 0.5;
const HEATS = 5;
const TOKENS = ["ground", "surface", "raised", "sunken", "line", "line-strong", "text", "text-dim", "accent", "accent-strong", "good", "busy", "bad", "dim", "switch-leaf", "switch-spine", "switch-core", "feed-a", "feed-b", "feed-c", "feed-other"] as const;

export type Token = (typeof TOKENS)[number];

/** The colours of pictures. */
export interface Colours {
  of: Record<Token, string>;
  states: Map<string, string>;
  categories: string[];
  heats: [number, number, number][];
  /** Fonts of labels. */
  sans: string;
  mono: string;
}

function rgb(hex: string): [number, number, number] {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

function mixed(one: [number, number, number], other: [number, number, number], part: number): string {
  return `rgb(${one.map((value, index) => Math.round(value + ((other[index] ?? 0) - value) * part)).join(" ")})`;
}

function read(): Colours {
  const numbered = (name: string, count: number) => Array.from({ length: count }, (_, index) => colour(`--${name}-${index}`));
  const categories = numbered("category", CATEGORIES);
  const ground = rgb(colour("--ground"));
  return {
    of: Object.fromEntries(TOKENS.map((token) => [token, colour(`--${token}`)])) as Record<Token, string>,
    states: new Map([...NODE_STATES, "unknown"].map((state) => [state, colour(`--state-${state}`)])),
    categories: [...categories, ...categories.map((some) => mixed(rgb(some), ground, MIXED))],
    heats: numbered("heat", HEATS).map(rgb),
    sans: colour("--sans"),
    mono: colour("--mono"),
  };
}

/** The colours of the present theme. */
export function useColours(): Colours {
  return useMemo(read, [paletteVersion.value]);
}

/** A colour between cold and hot; `share` from 0 to 1. */
export function heat({ heats }: Colours, share: number): string {
  const at = Math.min(0.999, Math.max(0, share)) * (heats.length - 1);
  const black: [number, number, number] = [0, 0, 0];
  const [low, high] = [heats[Math.floor(at)] ?? black, heats[Math.floor(at) + 1] ?? black];
  return mixed(low, high, at - Math.floor(at));
}

/** A colour for each name: the same while the names stay the same. */
export function categoriesOf(names: Iterable<string>): Map<string, number> {
  const sorted = [...new Set(names)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return new Map(sorted.map((name, index) => [name, index % (2 * CATEGORIES)]));
}

/** The colour of a feed letter. */
export function feedColour({ of }: Colours, feed: string): string {
  const known: Record<string, Token> = { A: "feed-a", B: "feed-b", C: "feed-c" };
  return of[known[feed] ?? "feed-other"];
}
