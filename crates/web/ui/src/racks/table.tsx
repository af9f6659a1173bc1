import { useEffect, useMemo, useState } from "preact/hooks";
import { useBox } from "../hall/use-box";
import { NodeLink } from "../parts/text";
import type { Spot } from "./layout";
import { rackWatts, wordOf, type Known } from "./look";
import type { Machine, Rack } from "./model";

const ROW = 26;
const BEYOND = 6;

interface Entry {
  rack: number;
  /** -1: the rack itself. */
  machine: number;
}

/** Racks and their machines, from the top down. */
function entriesOf(racks: Rack[]): Entry[] {
  return racks.flatMap(({ machines }, rack) => [{ rack, machine: -1 }, ...machines.map((_, index) => ({ rack, machine: machines.length - 1 - index }))]);
}

/** The content of the picture as a table. Only the visible rows are in the document. */
export function RackTable({ racks, known, spot }: { racks: Rack[]; known: Known; spot: Spot }) {
  const [place, box] = useBox<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const entries = useMemo(() => entriesOf(racks), [racks]);
  const starts = useMemo(() => new Map(entries.flatMap(({ rack, machine }, index) => (machine < 0 ? [[rack, index] as const] : []))), [entries]);
  useEffect(() => {
    const start = starts.get(spot.rack);
    if (start !== undefined && place.current !== null && document.activeElement?.closest(".rack-table") === null) {
      place.current.scrollTop = start * ROW;
    }
  }, [spot.rack, starts]);
  const first = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const last = Math.min(entries.length, Math.ceil((top + box.height) / ROW) + BEYOND);
  return (
    <div class="rack-table" ref={place} tabIndex={0} role="group" aria-label="Machines by rack" onScroll={(event) => setTop(Math.floor(event.currentTarget.scrollTop / ROW) * ROW)}>
      <table aria-rowcount={entries.length + 1}>
        <caption class="sr">Machines by rack, from the top down</caption>
        <thead>
          <tr>
            <th scope="col" class="number">
              unit
            </th>
            <th scope="col">machine</th>
            <th scope="col">{known.by === "watts" ? "state" : known.by}</th>
          </tr>
        </thead>
        <tbody>
          <tr aria-hidden="true" class="space">
            <td colSpan={3} style={{ height: `${first * ROW}px` }} />
          </tr>
          {entries.slice(first, last).map(({ rack, machine }, index) => {
            const of = racks[rack];
            const found = of?.machines[machine];
            return of && <EntryRow key={first + index} index={first + index} rack={of} machine={found} known={known} isAt={rack === spot.rack && machine === spot.machine} />;
          })}
          <tr aria-hidden="true" class="space">
            <td colSpan={3} style={{ height: `${(entries.length - last) * ROW}px` }} />
          </tr>
        </tbody>
      </table>
    </div>
  );
}

function EntryRow({ rack, machine, known, index, isAt }: { rack: Rack; machine: Machine | undefined; known: Known; index: number; isAt: boolean }) {
  if (machine === undefined) {
    return (
      <tr class="rack-row" aria-rowindex={index + 2}>
        <th scope="rowgroup" colSpan={3}>
          <span class="name">{rack.name}</span> <span class="dim">
            {known.by === "watts" ? rackWatts(known, rack) : rack.room}
            {rack.machines.length === 0 && ", empty"}
          </span>
        </th>
      </tr>
    );
  }
  return (
    <tr class={isAt ? "at" : undefined} aria-rowindex={index + 2}>
      <td class="number dim">{machine.unit || "?"}</td>
      <td>{machine.isNode ? <NodeLink id={machine.name} /> : <a class="name" href={`/fabric?switch=${encodeURIComponent(machine.name)}`}>{machine.name}</a>}</td>
      <td>
        {wordOf(known, machine)}
        {machine.isNode && known.alarms.ofNode.has(machine.name) && <span class="bad-text">, alarm</span>}
      </td>
    </tr>
  );
}
