import { kw } from "../hall/pdus";
import type { Figures } from "./levels";

function words({ permitted, reserved, worst, measured, headroom, stranded }: Figures): string {
  return `permitted ${kw(permitted)}, reserved ${kw(reserved)}, worst case ${kw(worst)}, measured ${kw(measured)}, headroom ${kw(headroom)}, stranded ${kw(stranded)}`;
}

/** Watts on a scale that ends at what is permitted, or at the load if that is higher. */
export function PowerBar({ figures, isThin = false }: { figures: Figures; isThin?: boolean }) {
  const { permitted, reserved, worst, measured, stranded } = figures;
  const most = Math.max(permitted, worst, reserved, measured ?? 0, 1);
  const share = (watts: number) => `${Math.max(0, Math.min(100, (watts / most) * 100))}%`;
  const isOver = worst > permitted + 0.5;
  return (
    <div class={isThin ? "power-bar thin" : "power-bar"} role="img" aria-label={words(figures)} title={words(figures)}>
      <span class="permitted" style={{ width: share(permitted) }} />
      {worst > reserved && <span class="worst" style={{ left: share(reserved), width: share(Math.min(worst, permitted) - reserved) }} />}
      <span class="reserved" style={{ width: share(Math.min(reserved, permitted)) }} />
      {stranded > 0 && <span class="stranded" style={{ left: share(worst), width: share(stranded) }} />}
      {isOver && <span class="over" style={{ left: share(permitted), width: share(worst - permitted) }} />}
      {measured !== null && <span class={measured > permitted ? "measured bad" : "measured"} style={{ width: share(measured) }} />}
      {isOver && <span class="limit" style={{ left: share(permitted) }} />}
    </div>
  );
}

/** What the parts of a bar mean. */
export function BarLegend() {
  const parts: [string, string][] = [
    ["measured", "measured"],
    ["reserved", "reserved"],
    ["worst", "worst case: after the loss of a feed"],
    ["stranded", "stranded: no free node can use it"],
    ["permitted", "permitted"],
  ];
  return (
    <ul class="legend">
      {parts.map(([key, text]) => (
        <li key={key}>
          <span class={`power-key ${key}`} /> {text}
        </li>
      ))}
    </ul>
  );
}
