import type { NodeStateWord } from "../words";

/** A term of the API's filter language. */
export function term(field: string, value: string): string {
  return /^[^\s"]+$/.test(value) ? `${field} = ${value}` : `${field} = "${value.replaceAll('"', "")}"`;
}

const STATE_TERM = /(^|\s+AND\s+)state\s*=\s*"?([a-z]+)"?(?=$|\s+AND\s)/;

/** The state that a filter asks for; empty: none in particular. */
export function stateOf(filter: string): string {
  return STATE_TERM.exec(filter)?.[2] ?? "";
}

/** The filter with this state in place of the one that it asks for; asked for again, the state is left out. */
export function withState(filter: string, state: NodeStateWord): string {
  const before = stateOf(filter);
  const rest = filter
    .replace(STATE_TERM, "")
    .replace(/^\s*AND\s+/, "")
    .trim();
  const wanted = before === state ? "" : term("state", state);
  return [wanted, rest].filter(Boolean).join(" AND ");
}
