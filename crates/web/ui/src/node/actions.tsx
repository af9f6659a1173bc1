import { VerbDialog } from "../actions/dialog";
import type { Verb } from "../actions/verb";
import { VERBS } from "../actions/verbs";
import type { Row } from "../fleet/row";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { Panel } from "../parts/panel";
import { Prose } from "../parts/prose";
import { Copy } from "../parts/text";
import { forbids } from "../roles";
import { session } from "../session";
import type { NodeView } from "./view";

const GROUPS: [string, string[]][] = [
  ["Work", ["deploy", "reimage", "release", "retry"]],
  ["Service", ["hold", "resume", "quarantine", "readmit", "believe"]],
  ["Power", ["power-on", "power-off", "power-cycle", "ac-cycle"]],
  ["Machine", ["firmware", "settings", "bmc-password", "delete"]],
];

function verbOf(id: string): Verb | undefined {
  return VERBS.find((verb) => verb.id === id);
}

function VerbButton({ verb, row, isFirst = false }: { verb: Verb; row: Row; isFirst?: boolean }) {
  const cannot = verb.cannot(row);
  const why = forbids(verb) || (cannot === "" ? "" : `Not now: ${row.id} is ${cannot}`);
  const kind = verb.loses(row) !== "" ? "danger" : isFirst ? "primary" : "plain";
  return (
    <Button
      kind={kind}
      why={why}
      onClick={() => openDialog((close) => <VerbDialog verb={verb} rows={[row]} close={close} />)}
    >
      {verb.label}
    </Button>
  );
}

/** The actions by group. Customers see those that they may ever do. */
function offered(): [string, Verb[]][] {
  const isCustomer = (session.value?.customer ?? "") !== "";
  const groups = GROUPS.map(([title, ids]): [string, Verb[]] => {
    const verbs = ids.map(verbOf).filter((verb) => verb !== undefined);
    return [title, verbs.filter((verb) => !isCustomer || verb.isForCustomers)];
  });
  return groups.filter(([, verbs]) => verbs.length > 0);
}

/** Every action on a node. One that cannot be done now says why. */
export function NodeActions({ of: { row } }: { of: NodeView }) {
  return (
    <Panel title="Actions">
      <div class="actions">
        {offered().map(([title, verbs]) => (
          <div key={title} role="group" aria-label={title}>
            <span class="actions-title">{title}</span>
            {verbs.map((verb) => (
              <VerbButton key={verb.id} verb={verb} row={row} />
            ))}
          </div>
        ))}
      </div>
    </Panel>
  );
}

/** "rackwright node deploy gpu-001: --image IMAGE puts an image on it": options may stand on both sides of the colon. */
const COMMAND = /^(rackwright [^:]*): ((?:--[a-z-]+ [A-Z]+ )*)(.*)$/s;

function Hint({ hint, row, isFirst }: { hint: string; row: Row; isFirst: boolean }) {
  const [, command, options = "", what] = COMMAND.exec(hint) ?? [];
  if (command === undefined || what === undefined) {
    return (
      <li>
        <span>
          <Prose text={hint} />
        </span>
      </li>
    );
  }
  const verb = verbOf(/^rackwright node ([a-z-]+) /.exec(command)?.[1] ?? "");
  const whole = `${command} ${options}`.trim();
  return (
    <li>
      {verb ? <VerbButton verb={verb} row={row} isFirst={isFirst} /> : null}
      <span class="hint-text">
        <span>
          <Prose text={what} />
        </span>
        <Copy text={whole} label="Copy the command" />
      </span>
    </li>
  );
}

/** What the control plane advises, the most useful first. */
export function Hints({ of: { row, explanation } }: { of: NodeView }) {
  const hints = explanation?.hints ?? [];
  if (hints.length === 0) {
    return null;
  }
  return (
    <Panel title="What you can do">
      <ol class="hints">
        {hints.map((hint, index) => (
          <Hint key={hint} hint={hint} row={row} isFirst={index === 0} />
        ))}
      </ol>
    </Panel>
  );
}
