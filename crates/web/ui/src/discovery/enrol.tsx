import { useState } from "preact/hooks";
import type { Discovery, EnrolFindingsRequest, EnrolledFinding, Finding } from "../api";
import { call, change } from "../client";
import { shellWord, short } from "../names";
import { labelsOf } from "../order/wanted";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { Dialog, openDialog } from "../parts/dialog";
import { TextField } from "../parts/form";
import { Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { NodeLink } from "../parts/text";
import { plural } from "../units";
import { usePlan } from "../use-plan";
import { idOf, shortAddress } from "./words";

interface Props {
  discovery: Discovery;
  findings: Finding[];
  close(): void;
  changed(): void;
}

/** Enrols machines that were found. The names are shown before. */
export function EnrolDialog({ discovery, findings, close, changed }: Props) {
  const [nameTemplate, setNameTemplate] = useState("");
  const [sku, setSku] = useState("");
  const [labels, setLabels] = useState("");
  const addresses = findings.map(({ address }) => shortAddress(address));
  const request: EnrolFindingsRequest = {
    parent: discovery.name,
    findings: addresses,
    nameTemplate: nameTemplate.trim(),
    sku: sku.trim(),
    labels: labelsOf(labels),
    update: findings.some(({ state }) => state === "moved"),
  };
  const planned = usePlan(JSON.stringify(request), () =>
    call("DiscoveryService/EnrolFindings", { ...request, validateOnly: true }),
  );
  const words = [
    `rackwright discover enrol ${addresses.slice(0, 3).join(" ")}${addresses.length > 3 ? " ..." : ""} --discovery ${idOf(discovery)}`,
    nameTemplate.trim() && `--name ${shellWord(nameTemplate.trim())}`,
    sku.trim() && `--sku ${shellWord(sku.trim())}`,
    ...Object.entries(labelsOf(labels)).map(([name, value]) => `--label ${shellWord(`${name}=${value}`)}`),
    request.update && "--update",
  ];
  return (
    <ConfirmDialog
      title={`Enrol ${plural(findings.length, "machine")}`}
      close={close}
      effect="New machines become nodes and are inspected; nodes that moved get the address at which they were found. All or nothing."
      why={planned.isCurrent ? "" : "Show the names first"}
      commands={[words.filter(Boolean).join(" ")]}
      send={() => change("DiscoveryService/EnrolFindings", request)}
      done={({ findings: done }) => {
        changed();
        openDialog((end) => <DoneDialog findings={done ?? []} close={end} />);
      }}
    >
      <TextField
        label="Template of the names"
        placeholder="gpu-{rack}-u{unit}"
        help="With {serial}, {uuid}, {rack}, {unit}, {site}, {address}. Empty: the table's name, else the site file's, else the serial number."
        value={nameTemplate}
        set={setNameTemplate}
      />
      <div class="field-row">
        <TextField label="SKU" help="For machines without one from another source." value={sku} set={setSku} />
        <TextField
          label="Labels"
          placeholder="pod=a"
          help="Optional, with commas between them."
          value={labels}
          set={setLabels}
        />
      </div>
      <div>
        <Button isBusy={planned.isBusy} onClick={planned.make}>
          Show the names
        </Button>
      </div>
      <Problem error={planned.error} doing="plan the enrolment" />
      {planned.isCurrent && <Planned findings={planned.plan?.findings ?? []} />}
    </ConfirmDialog>
  );
}

function addressOf({ finding }: EnrolledFinding): string {
  return shortAddress((finding ?? "").split("/findings/")[1] ?? finding);
}

const ACTIONS: Record<string, string> = { enrol: "enrol as", update: "update the address of", skip: "skip" };

function Planned({ findings }: { findings: EnrolledFinding[] }) {
  return (
    <div class="name-table">
      <Table
        caption="What is planned"
        rows={findings}
        keyOf={({ finding }) => finding ?? ""}
        columns={[
          { title: "address", cell: (one) => <span class="name">{addressOf(one)}</span> },
          { title: "action", cell: ({ action }) => ACTIONS[action ?? ""] ?? action },
          { title: "node", cell: ({ node }) => <span class="name">{short("nodes", node)}</span> },
          { title: "why", cell: ({ reason }) => reason },
        ]}
      />
    </div>
  );
}

function DoneDialog({ findings, close }: { findings: EnrolledFinding[]; close(): void }) {
  const of = (wanted: string) => findings.filter(({ action }) => action === wanted);
  const skipped = of("skip");
  return (
    <Dialog
      title="Enrolled"
      close={close}
      onSubmit={close}
      foot={
        <Button type="submit" kind="primary">
          Done
        </Button>
      }
    >
      <p role="status">
        {plural(of("enrol").length, "node")} enrolled, {of("update").length} updated, {skipped.length} skipped.
      </p>
      <ul class="outcomes">
        {findings.map((one) => (
          <li key={one.finding}>
            {one.action === "skip" ? (
              <span class="name">{addressOf(one)}</span>
            ) : (
              <NodeLink id={short("nodes", one.node)} />
            )}{" "}
            <span class="dim">{one.reason}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
