import { useState } from "preact/hooks";
import type { Row } from "../fleet/row";
import { Button } from "../parts/button";
import { Dialog, openDialog } from "../parts/dialog";
import { AsCli } from "../parts/panel";
import { Bar } from "../parts/progress";
import { NodeLink } from "../parts/text";
import { count, plural } from "../units";
import { VerbFields } from "./fields";
import { start, type Run } from "./run";
import { NO_VALUES, type Values, type Verb } from "./verb";

const SHOWN_NAMES = 200;
const SHOWN_COMMANDS = 2;
const FIELD_WORDS: Partial<Record<keyof Values, string>> = { reason: "Give a reason", image: "Choose an image" };

interface Props {
  verb: Verb;
  rows: Row[];
  close(): void;
}

/** Shows what a verb will do to which nodes, asks, does it, and reports. */
export function VerbDialog({ verb, rows, close }: Props) {
  const [run, setRun] = useState<Run | null>(null);
  const can = rows.filter((row) => verb.cannot(row) === "");
  const begin = (values: Values) => {
    const started = start(verb, can, values);
    setRun(started);
    void started.finished.then(() => {
      const isShown = document.querySelector("dialog[open] [data-run]") !== null;
      if (!isShown && started.failures.value.length > 0) {
        openDialog((end) => <Outcome verb={verb} run={started} close={end} />);
      }
    });
  };
  return run === null ? (
    <Plan verb={verb} rows={rows} can={can} close={close} begin={begin} />
  ) : (
    <Outcome verb={verb} run={run} close={close} />
  );
}

/** Nodes by a text about them. */
function byText(rows: Row[], text: (row: Row) => string): [string, Row[]][] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const key = text(row);
    if (key !== "") {
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
  }
  return [...groups].sort(([, a], [, b]) => b.length - a.length);
}

function subject(rows: Row[]): string {
  return rows.length === 1 && rows[0] ? rows[0].id : plural(rows.length, "node");
}

function Plan({ verb, rows, can, close, begin }: Props & { can: Row[]; begin(values: Values): void }) {
  const [values, setValues] = useState<Values>(NO_VALUES);
  const [typed, setTyped] = useState("");
  const losses = byText(can, verb.loses);
  const wanted = losses.length === 0 ? "" : can.length === 1 ? (can[0]?.id ?? "") : String(can.length);
  const missing = verb.required.find((field) => String(values[field]).trim() === "");
  const why =
    can.length === 0
      ? "No node can have this"
      : missing
        ? (FIELD_WORDS[missing] ?? "Fill the fields")
        : wanted !== "" && typed.trim() !== wanted
          ? `Type ${wanted} to confirm`
          : "";
  const commands = verb.cli(
    can.map((row) => row.id),
    values,
  );
  const title = `${verb.label} ${subject(can)}`;
  return (
    <Dialog
      title={title}
      close={close}
      onSubmit={() => why === "" && begin(values)}
      foot={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind={wanted === "" ? "primary" : "danger"} why={why}>
            {title}
          </Button>
        </>
      }
    >
      <p>{verb.effect}</p>
      {can.length > 1 && <Names rows={can} />}
      <LeftOut groups={byText(rows, verb.cannot)} />
      <VerbFields
        values={values}
        set={(changes) => setValues({ ...values, ...changes })}
        fields={verb.fields}
        required={verb.required}
        isOne={can.length === 1}
      />
      <Losses groups={losses} />
      {wanted !== "" && (
        <label class="field">
          <span>
            Type {can.length === 1 ? "the name" : "the number of nodes"}, <strong class="name">{wanted}</strong>, to
            confirm
          </span>
          <input
            type="text"
            autocomplete="off"
            spellcheck={false}
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
      )}
      {can.length > 0 && <AsCli commands={commands.slice(0, SHOWN_COMMANDS)} />}
    </Dialog>
  );
}

function Names({ rows }: { rows: Row[] }) {
  return (
    <div class="name-list" tabIndex={0} role="group" aria-label="Nodes">
      {rows.slice(0, SHOWN_NAMES).map((row) => (
        <span class="name" key={row.id}>
          {row.id}
        </span>
      ))}
      {rows.length > SHOWN_NAMES && <span>and {count(rows.length - SHOWN_NAMES)} more</span>}
    </div>
  );
}

function LeftOut({ groups }: { groups: [string, Row[]][] }) {
  if (groups.length === 0) {
    return null;
  }
  const all = groups.reduce((sum, [, rows]) => sum + rows.length, 0);
  return (
    <details class="dim" open={groups.length <= 3}>
      <summary>Left out: {plural(all, "node")}</summary>
      <ul>
        {groups.map(([why, rows]) => (
          <li key={why}>
            {subject(rows)} {rows.length === 1 ? "is" : "are"} {why}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Losses({ groups }: { groups: [string, Row[]][] }) {
  if (groups.length === 0) {
    return null;
  }
  const customers = byText(
    groups.flatMap(([, rows]) => rows),
    (row) => row.customer,
  );
  return (
    <div class="loss">
      {groups.map(([what, rows]) => (
        <p key={what}>
          <strong>Lost on {subject(rows)}:</strong> {what}.
        </p>
      ))}
      {customers.map(([customer, rows]) => (
        <p key={customer}>
          {customer} has {rows.length === 1 ? "one" : count(rows.length)} of these nodes.
        </p>
      ))}
    </div>
  );
}

function Outcome({ verb, run, close }: { verb: Verb; run: Run; close(): void }) {
  const done = run.done.value;
  const failures = run.failures.value;
  const isOver = done === run.total;
  const accepted = done - failures.length;
  return (
    <Dialog
      title={verb.label}
      close={close}
      onSubmit={close}
      foot={<Button type="submit">{isOver ? "Close" : "Close; the work goes on"}</Button>}
    >
      <div data-run class="stack">
        {!isOver && <Bar percent={(done / run.total) * 100} label={verb.label} />}
        <p role="status">
          {isOver ? `Accepted for ${plural(accepted, "node")}` : `${count(done)} of ${plural(run.total, "node")}`}
          {failures.length > 0 && `, refused for ${plural(failures.length, "node")}`}.
        </p>
        {failures.length > 0 && (
          <ul class="outcomes">
            {failures.map(({ row, error }) => (
              <li key={row.id}>
                <NodeLink id={row.id} />: <span class="bad-text">{error.message}</span>{" "}
                {error.fields.map(({ field, description }) => `${field}: ${description}`).join("; ")}{" "}
                <span class="dim">{error.hint}</span>
              </li>
            ))}
          </ul>
        )}
      </div>
    </Dialog>
  );
}
