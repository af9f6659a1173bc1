import { useMemo, useState } from "preact/hooks";
import type { TopologySwitch } from "../api";
import { useBox } from "../hall/use-box";
import { count, plural } from "../units";

const ROW = 26;
const BEYOND = 6;

function standOf({ pod, scalableUnit, rail }: TopologySwitch): string {
  return [pod ? `pod ${pod}` : "", scalableUnit ? `su ${scalableUnit}` : "", rail === undefined ? "" : `rail ${rail}`].filter(Boolean).join(", ");
}

/** The switches as a table. Only the visible rows are in the document. */
export function SwitchTable({ switches, faulty, choose }: { switches: TopologySwitch[]; faulty: ReadonlyMap<string, number>; choose(name: string): void }) {
  const [place, box] = useBox<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const [text, setText] = useState("");
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const rows = switches.filter(({ name = "", rack = "" }) => `${name} ${rack}`.toLowerCase().includes(wanted));
    return rows.sort((a, b) => (faulty.get(b.name ?? "") ?? 0) - (faulty.get(a.name ?? "") ?? 0) || (a.name ?? "").localeCompare(b.name ?? "", "en", { numeric: true }));
  }, [switches, faulty, text]);
  const first = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const last = Math.min(shown.length, Math.ceil((top + box.height) / ROW) + BEYOND);
  return (
    <div class="switches">
      <div class="switches-head">
        <h2>{plural(shown.length, "switch").replace(/switchs$/, "switches")}</h2>
        <input type="text" aria-label="Show only switches with this name or rack" placeholder="name or rack" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      <div class="rack-table" ref={place} tabIndex={0} role="group" aria-label="Switches" onScroll={(event) => setTop(Math.floor(event.currentTarget.scrollTop / ROW) * ROW)}>
        <table aria-rowcount={shown.length + 1}>
          <caption class="sr">Switches, those with faults first</caption>
          <thead>
            <tr>
              <th scope="col">switch</th>
              <th scope="col">where</th>
              <th scope="col" class="number">
                cables
              </th>
            </tr>
          </thead>
          <tbody>
            <tr class="space" aria-hidden="true">
              <td colSpan={3} style={{ height: `${first * ROW}px` }} />
            </tr>
            {shown.slice(first, last).map((some, index) => (
              <Row key={some.name} of={some} index={first + index} faulty={faulty.get(some.name ?? "") ?? 0} choose={choose} />
            ))}
            <tr class="space" aria-hidden="true">
              <td colSpan={3} style={{ height: `${(shown.length - last) * ROW}px` }} />
            </tr>
          </tbody>
        </table>
      </div>
    </div>
  );
}

function Row({ of, index, faulty, choose }: { of: TopologySwitch; index: number; faulty: number; choose(name: string): void }) {
  const { name = "", downCables = 0, upCables = 0, level } = of;
  return (
    <tr aria-rowindex={index + 2}>
      <td>
        <button type="button" class="link-button name" onClick={() => choose(name)}>
          {name}
        </button>
      </td>
      <td class="dim" title={standOf(of)}>
        {standOf(of) || level}
      </td>
      <td class="number">{faulty > 0 ? <span class="bad-text">{plural(faulty, "fault")}</span> : count(downCables + upCables)}</td>
    </tr>
  );
}
