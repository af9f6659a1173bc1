import type { Row } from "../fleet/row";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { forbids } from "../roles";
import { plural } from "../units";
import { VerbDialog } from "./dialog";
import type { Verb } from "./verb";
import { VERBS } from "./verbs";

/** Why none of the nodes can have it; empty: one can. */
function whyNot(verb: Verb, rows: Row[]): string {
  const forbidden = forbids(verb);
  if (forbidden !== "") {
    return forbidden;
  }
  const reasons = new Set<string>();
  for (const row of rows) {
    const why = verb.cannot(row);
    if (why === "") {
      return "";
    }
    reasons.add(why);
  }
  return `Not for the selected nodes: they are ${[...reasons].slice(0, 3).join(", or ")}`;
}

/** The actions for the selected nodes. */
export function BulkBar({ rows, clear }: { rows: Row[]; clear(): void }) {
  return (
    <section class="bulk" aria-label="Actions for the selected nodes">
      <strong>{plural(rows.length, "node")} selected</strong>
      {VERBS.filter((verb) => verb.isBulk && (verb.isForCustomers || forbids(verb) === "")).map((verb) => (
        <Button
          key={verb.id}
          why={whyNot(verb, rows)}
          onClick={() => openDialog((close) => <VerbDialog verb={verb} rows={rows} close={close} />)}
        >
          {verb.label}
        </Button>
      ))}
      <Button kind="quiet" onClick={clear}>
        Clear
      </Button>
    </section>
  );
}
