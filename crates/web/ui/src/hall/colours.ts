import { colour, paletteVersion } from "../theme";
import { NODE_STATES } from "../words";
import { useMemo } from "preact/hooks";

const CATEGORIES = 10;
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

function read(): Colours {
  const numbered = (name: string, count: number) => Array.from({ length: count }, (_, index) => colour(`--${name}-${index}`));
  return {
    of: Object.fromEntries(TOKENS.map((token) => [token, colour(`--${token}`)])) as Record<Token, string>,
    states: new Map([...NODE_STATES, "unknown"].map((state) => [state, colour(`--state-${state}`)])),
    categories: numbered("category", CATEGORIES),
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
  const [low, high] = [heats[Math.floor(at)] ?? [0, 0, 0], heats[Math.floor(at) + 1] ?? [0, 0, 0]];
  const part = at - Math.floor(at);
  const mixed = low.map((value, index) => Math.round(value + ((high[index] ?? 0) - value) * part));
  return `rgb(${mixed.join(" ")})`;
}

/** A colour for each name: the same while the names stay the same. */
export function categoriesOf(names: Iterable<string>): Map<string, number> {
  const sorted = [...new Set(names)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return new Map(sorted.map((name, index) => [name, index % CATEGORIES]));
}

/** The colour of a feed letter. */
export function feedColour({ of }: Colours, feed: string): string {
  const known: Record<string, Token> = { A: "feed-a", B: "feed-b", C: "feed-c" };
  return of[known[feed] ?? "feed-other"];
}
