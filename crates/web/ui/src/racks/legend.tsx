import { useMemo } from "preact/hooks";
import { feedColour, heat, useColours } from "../hall/colours";
import { kw } from "../hall/pdus";
import { Legend } from "../parts/heat-map";
import { link } from "../router";
import { count, plural } from "../units";
import type { NodeStateWord } from "../words";
import { categoryOf, type Known } from "./look";
import { nodesIn, type Rack } from "./model";

const STOPS = 9;

/** What the colours mean, with numbers. */
export function RackLegend({ known, racks }: { known: Known; racks: Rack[] }) {
  const names = useMemo(() => nodesIn(racks), [racks]);
  const feeds = useMemo(() => [...new Set(racks.flatMap(({ pdus }) => pdus.map(({ feed }) => feed)))].sort(), [racks]);
  return (
    <div class="legends">
      {known.by === "state" && <States known={known} names={names} />}
      {known.by === "watts" && <Watts known={known} />}
      {known.by === "temperature" && <Temperatures number={known.alarms.temperatures.size} />}
      {(known.by === "customer" || known.by === "cluster") && <Categories known={known} names={names} />}
      <Sides feeds={feeds} />
    </div>
  );
}

function Temperatures({ number }: { number: number }) {
  return (
    <p class="dim">
      Temperatures are known only where an alarm tells one: of {plural(number, "node")}. All others are unknown, and drawn as outlines.
    </p>
  );
}

function States({ known, names }: { known: Known; names: string[] }) {
  const counts = new Map<NodeStateWord, number>();
  let absent = 0;
  for (const name of names) {
    const state = known.rows.get(name)?.state;
    if (state === undefined) {
      absent += 1;
    } else {
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
  }
  return (
    <>
      <Legend counts={counts} query={(state) => link("/nodes", { filter: `state = ${state}` })} />
      {absent > 0 && <span class="dim small">{count(absent)} not enrolled: outlines</span>}
    </>
  );
}

/** The PDUs at the sides, and the mark of alarms. */
function Sides({ feeds }: { feeds: string[] }) {
  const colours = useColours();
  return (
    <ul class="legend" aria-label="Sides of the racks">
      {feeds.map((feed) => (
        <li key={feed}>
          <span class="swatch" style={{ background: feedColour(colours, feed) }} /> {feed ? `feed ${feed}` : "feed unknown"}
        </li>
      ))}
      <li>
        <span class="swatch alarmed" /> alarm
      </li>
    </ul>
  );
}

function Watts({ known }: { known: Known }) {
  const colours = useColours();
  const stops = Array.from({ length: STOPS }, (_, index) => heat(colours, index / (STOPS - 1))).join(", ");
  return (
    <>
      <p class="scale">
        <span>0 kW</span>
        <span class="scale-bar" style={{ background: `linear-gradient(90deg, ${stops})` }} />
        <span>{kw(known.most)} a rack</span>
      </p>
      <span class="dim small">Measured by the PDUs of the rack. Hatched: not measured, so the reserved watts.</span>
    </>
  );
}

function Categories({ known, names }: { known: Known; names: string[] }) {
  const colours = useColours();
  const counts = useMemo(() => {
    const made = new Map<string, number>();
    for (const name of names) {
      const category = categoryOf(known, name);
      made.set(category, (made.get(category) ?? 0) + 1);
    }
    return made;
  }, [known, names]);
  const sorted = [...counts].filter(([name]) => name !== "").sort(([, a], [, b]) => b - a);
  return (
    <ul class="legend">
      {sorted.map(([name, number]) => (
        <li key={name}>
          <span class="swatch" style={{ background: colours.categories[known.categories.get(name) ?? 0] }} /> {name} <strong>{count(number)}</strong>
        </li>
      ))}
      <li>
        <span class="swatch plain" /> {known.by === "customer" ? "no customer" : "no cluster"} <strong>{count(counts.get("") ?? 0)}</strong>
      </li>
    </ul>
  );
}
