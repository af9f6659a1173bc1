import { useState } from "preact/hooks";
import type { Discovery, Finding } from "../api";
import { pages } from "../client";
import { short } from "../names";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { Pick } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Dash, NodeLink } from "../parts/text";
import { location, setQuery } from "../router";
import { mayCall, whyNotCall } from "../roles";
import { count, plural } from "../units";
import { useWork } from "../use-call";
import { EnrolDialog } from "./enrol";
import { advice, canEnrol, findingState, FINDING_STATES, idOf, placeText, shortAddress } from "./words";

const SHOWN = 500;

/** What a discovery found. New and moved machines can be chosen and enrolled. */
export function FindingsPanel({ discovery }: { discovery: Discovery }) {
  const state = location.value.query.get("state") ?? "";
  const isOpen = discovery.phase !== "done";
  const { data, error, reload } = useWork(
    (signal): Promise<Finding[]> =>
      pages(
        "DiscoveryService/ListFindings",
        { parent: discovery.name, pageSize: 1_000, state },
        ({ findings }) => findings,
        signal,
      ),
    `findings ${discovery.name} ${state} ${JSON.stringify(discovery.counts)}`,
    { everyMs: isOpen ? 3_000 : 0 },
  );
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const list = data ?? [];
  const canChoose = mayCall("DiscoveryService/EnrolFindings");
  const able = list.filter(canEnrol);
  const selected = able.filter(({ address }) => chosen.has(shortAddress(address)));
  const counts = discovery.counts ?? {};
  const options = FINDING_STATES.filter((word) => Number(counts[word] ?? 0) > 0 || word === state).map(
    (word): [string, string] => [word, `${word}, ${counts[word] ?? 0}`],
  );
  const toggle = (addresses: string[], isChosen: boolean) => {
    const next = new Set(chosen);
    addresses.forEach((address) => (isChosen ? next.add(address) : next.delete(address)));
    setChosen(next);
  };
  const enrol = () =>
    openDialog((close) => <EnrolDialog discovery={discovery} findings={selected} close={close} changed={reload} />);
  const why =
    whyNotCall("DiscoveryService/EnrolFindings") || (selected.length === 0 ? "Select new or moved machines" : "");
  return (
    <Panel
      title={`Findings of ${idOf(discovery).slice(0, 8)}`}
      side={
        <>
          <Pick
            label="state"
            value={state}
            set={(value) => setQuery({ state: value })}
            options={[["", "all"], ...options]}
          />
          {canChoose && (
            <Button kind="primary" why={why} onClick={enrol}>
              {selected.length > 0 ? `Enrol ${count(selected.length)}` : "Enrol"}
            </Button>
          )}
        </>
      }
      isFlush
    >
      <Problem error={error} doing="list the findings" retry={reload} />
      {data === undefined && error === null && <Loading what="the findings" />}
      {data !== undefined && list.length === 0 && (
        <Empty title={isOpen ? "Nothing was found yet" : "Nothing was found"}>
          {!isOpen && (
            <p>
              If all addresses are silent, the range is wrong, or the control plane's host cannot reach this network.
            </p>
          )}
        </Empty>
      )}
      {list.length > 0 && (
        <Findings findings={list.slice(0, SHOWN)} able={able} chosen={chosen} toggle={canChoose ? toggle : null} />
      )}
      {list.length > SHOWN && (
        <p class="note dim">
          The first {SHOWN} of {plural(list.length, "finding")}. Choose a state to see others.
        </p>
      )}
    </Panel>
  );
}

function Findings({
  findings,
  able,
  chosen,
  toggle,
}: {
  findings: Finding[];
  able: Finding[];
  chosen: ReadonlySet<string>;
  toggle: ((addresses: string[], isChosen: boolean) => void) | null;
}) {
  const addresses = able.map(({ address }) => shortAddress(address));
  const isAll = addresses.length > 0 && addresses.every((address) => chosen.has(address));
  const box: Column<Finding> = {
    title: "select",
    cell: (finding) =>
      canEnrol(finding) && (
        <input
          type="checkbox"
          aria-label={`Select ${shortAddress(finding.address)}`}
          checked={chosen.has(shortAddress(finding.address))}
          onChange={(event) => toggle?.([shortAddress(finding.address)], event.currentTarget.checked)}
        />
      ),
  };
  return (
    <>
      {toggle && addresses.length > 0 && (
        <label class="check note">
          <input type="checkbox" checked={isAll} onChange={(event) => toggle(addresses, event.currentTarget.checked)} />
          <span>Select all {plural(addresses.length, "machine")} that can be enrolled</span>
        </label>
      )}
      <Table
        caption="Findings"
        rows={findings}
        keyOf={({ address }) => address ?? ""}
        columns={[
          ...(toggle ? [box] : []),
          { title: "address", cell: ({ address }) => <span class="name">{shortAddress(address)}</span> },
          { title: "state", cell: ({ state }) => <StateBadge state={findingState(state)} /> },
          { title: "node", cell: ({ node }) => (node ? <NodeLink id={short("nodes", node)} /> : <Dash />) },
          { title: "maker and model", isWide: true, cell: (one) => <Machine finding={one} /> },
          {
            title: "serial",
            isWide: true,
            cell: ({ serial }) => (serial ? <span class="name">{serial}</span> : <Dash />),
          },
          { title: "rack", isWide: true, cell: (one) => <span class="nowrap">{placeText(one) || <Dash />}</span> },
          {
            title: "also at",
            isWide: true,
            cell: ({ otherAddresses }) => (otherAddresses ?? []).map(shortAddress).join(" "),
          },
          {
            title: "why, and what to do",
            isWide: true,
            cell: ({ reason, state }) => (
              <>
                {reason} <span class="dim">{advice(state)}</span>
              </>
            ),
          },
        ]}
      />
    </>
  );
}

function Machine({ finding: { manufacturer, vendor, model, product } }: { finding: Finding }) {
  const text = [manufacturer || vendor, model || product].filter(Boolean).join(" ");
  return text === "" ? <Dash /> : <span class="nowrap">{text}</span>;
}
