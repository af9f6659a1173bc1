import { useState } from "preact/hooks";
import type { Term } from "../api";
import { change, pages } from "../client";
import { useCustomers } from "../clusters/customers";
import { shellWord, short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { TextField } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { mayCall, whyNotCall } from "../roles";
import { millis } from "../time";
import { useWork } from "../use-call";

/** The day, if the time is at midnight in UTC. */
function day(time: string | undefined): string {
  return (time ?? "").replace(/T00:00:00(\.000)?Z$/, "");
}

function standing({ startTime, endTime }: Term) {
  const now = Date.now();
  if (millis(endTime) <= now) {
    return { word: "ended", tone: "dim", key: "dim" } as const;
  }
  return millis(startTime) > now
    ? ({ word: "to come", tone: "busy", key: "busy" } as const)
    : ({ word: "in force", tone: "good", key: "good" } as const);
}

/** Contracts for nodes. They divide usage into reserved and on demand. */
export function TermsPanel({ customer, changed }: { customer: string; changed(): void }) {
  const { data, error, reload } = useWork(
    (signal): Promise<Term[]> =>
      pages("MeteringService/ListTerms", { pageSize: 1_000, customer }, ({ terms }) => terms, signal),
    `terms ${customer}`,
  );
  const list = data ?? [];
  const both = () => {
    reload();
    changed();
  };
  const canSet = mayCall("MeteringService/SetTerm");
  const actions: Column<Term> = { title: "actions", cell: (term) => <TermActions term={term} changed={both} /> };
  return (
    <Panel
      title="Reserved terms"
      side={
        canSet && (
          <Button
            why={whyNotCall("MeteringService/SetTerm")}
            onClick={() => openDialog((close) => <TermDialog close={close} changed={both} />)}
          >
            Set a term
          </Button>
        )
      }
      isFlush
    >
      <Problem error={error} doing="list the terms" retry={reload} />
      {data === undefined && error === null && <Loading what="the terms" />}
      {data !== undefined && list.length === 0 && (
        <Empty title="There is no term">
          <p>All usage is on demand.</p>
        </Empty>
      )}
      {list.length > 0 && (
        <Table
          caption="Reserved terms"
          rows={list}
          keyOf={({ name }) => name ?? ""}
          columns={[
            { title: "term", cell: ({ name }) => <span class="name">{short("terms", name)}</span> },
            { title: "state", cell: (term) => <StateBadge state={standing(term)} /> },
            { title: "customer", cell: (term) => term.customer },
            { title: "SKU", isWide: true, cell: ({ sku }) => sku },
            { title: "nodes", isNumber: true, cell: ({ nodes }) => nodes },
            { title: "from", isWide: true, cell: ({ startTime }) => day(startTime) },
            { title: "to", isWide: true, cell: ({ endTime }) => day(endTime) },
            ...(canSet ? [actions] : []),
          ]}
        />
      )}
    </Panel>
  );
}

function TermActions({ term, changed }: { term: Term; changed(): void }) {
  const name = short("terms", term.name);
  const remove = () =>
    openDialog((close) => (
      <ConfirmDialog
        title={`Delete ${name}`}
        close={close}
        effect="The term is deleted as if it had never existed: past usage under it becomes on demand. Change terms before a period is billed."
        loses={`the term of ${term.nodes} nodes of ${term.sku} for ${term.customer}`}
        typed={name}
        commands={[`rackwright usage term delete ${name}`]}
        send={() => change("MeteringService/DeleteTerm", { name: term.name })}
        done={changed}
      />
    ));
  return (
    <span class="row-actions">
      <Button
        kind="quiet"
        why={whyNotCall("MeteringService/SetTerm")}
        onClick={() => openDialog((close) => <TermDialog term={term} close={close} changed={changed} />)}
      >
        Change
      </Button>
      <Button kind="quiet" why={whyNotCall("MeteringService/DeleteTerm")} onClick={remove}>
        Delete
      </Button>
    </span>
  );
}

const ID = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** A day from 00:00 UTC, or a time in whole seconds. */
function second(text: string): string | undefined {
  const given = text.trim();
  const time = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$/.test(given)
    ? Date.parse(given.length === 10 ? `${given}T00:00:00Z` : given)
    : Number.NaN;
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

function TermDialog({ term, close, changed }: { term?: Term; close(): void; changed(): void }) {
  const customers = useCustomers();
  const [name, setName] = useState(short("terms", term?.name));
  const [customer, setCustomer] = useState(term?.customer ?? "");
  const [sku, setSku] = useState(term?.sku ?? "");
  const [nodes, setNodes] = useState(String(term?.nodes ?? ""));
  const [from, setFrom] = useState(day(term?.startTime));
  const [to, setTo] = useState(day(term?.endTime));
  const [startTime, endTime] = [second(from), second(to)];
  const isWhole = /^\d+$/.test(nodes.trim()) && Number(nodes) > 0;
  const why = !ID.test(name)
    ? "Give a name of a-z, 0-9 and '-'"
    : customer.trim() === "" || sku.trim() === "" || !isWhole
      ? "Give customer, SKU and number of nodes"
      : startTime === undefined || endTime === undefined || startTime >= endTime
        ? "Give the days from and to, such as 2026-10-01"
        : "";
  const command = `rackwright usage term set ${name || "NAME"} --customer ${shellWord(customer || "NAME")} --sku ${shellWord(sku || "SKU")} --nodes ${nodes || "N"} --from ${from || "DAY"} --to ${to || "DAY"}`;
  return (
    <ConfirmDialog
      title={term ? `Change ${name}` : "Set a term"}
      close={close}
      effect="A number of nodes of a SKU that the customer pays for in the period. It also counts for the past: it moves past usage between reserved and on demand."
      why={why}
      commands={[command]}
      send={() =>
        change("MeteringService/SetTerm", {
          term: {
            name: `terms/${name}`,
            customer: customer.trim(),
            sku: sku.trim(),
            nodes: Number(nodes),
            startTime,
            endTime,
          },
        })
      }
      done={changed}
    >
      {!term && <TextField label="Name" placeholder="acme-2026" value={name} set={setName} />}
      <div class="field-row">
        <TextField label="Customer" value={customer} set={setCustomer} choices={customers} />
        <TextField label="SKU" value={sku} set={setSku} />
        <TextField label="Nodes" type="number" min={1} value={nodes} set={setNodes} />
      </div>
      <div class="field-row">
        <TextField
          label="From, UTC"
          placeholder="2026-10-01"
          help="A day, or 2026-10-01T06:00:00Z."
          value={from}
          set={setFrom}
        />
        <TextField label="To, not included" placeholder="2027-10-01" value={to} set={setTo} />
      </div>
    </ConfirmDialog>
  );
}
