import { useState } from "preact/hooks";
import { kw } from "../hall/pdus";
import { Icon } from "../parts/icon";
import { count } from "../units";
import type { Branch } from "./paths";

/** Depth to which a large tree is open at first. */
const OPEN_DEPTH = 1;

interface Props {
  branches: Branch[];
  /** Letter of the lost feed; empty: none. */
  lost: string;
  /** Watts at each step after the loss. */
  after: Map<string, number> | null;
  isLarge: boolean;
}

/** The steps from the utility down, with the load of the explained nodes in the load of all. */
export function StepTree({ branches, lost, after, isLarge }: Props) {
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const isOpen = ({ step, depth }: Branch) => (!isLarge || depth < OPEN_DEPTH) !== toggled.has(step.name ?? "");
  const lines: Branch[] = [];
  const walk = (some: Branch[]) => {
    for (const branch of some) {
      lines.push(branch);
      if (isOpen(branch)) {
        walk(branch.children);
      }
    }
  };
  walk(branches);
  const toggle = (name: string) => {
    const next = new Set(toggled);
    if (!next.delete(name)) {
      next.add(name);
    }
    setToggled(next);
  };
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="Path of power">
      <table class="table power-steps">
        <caption class="sr">Path of power from the utility, each step below its supply</caption>
        <thead>
          <tr>
            <th scope="col">step</th>
            <th scope="col">feed</th>
            <th scope="col">load</th>
            <th scope="col" class="number">
              these
            </th>
            <th scope="col" class="number wide">
              reserved
            </th>
            <th scope="col" class="number wide">
              measured
            </th>
            <th scope="col" class="number">
              permitted
            </th>
            <th scope="col" class="number wide">
              nodes
            </th>
            <th scope="col" class="number wide">
              starts
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((branch) => (
            <Line key={branch.step.name} branch={branch} isOpen={isOpen(branch)} toggle={toggle} lost={lost} after={after} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Line({ branch, isOpen, toggle, lost, after }: { branch: Branch; isOpen: boolean; toggle(name: string): void; lost: string; after: Props["after"] }) {
  const { step, depth, children } = branch;
  const name = step.name ?? "";
  const isLost = lost !== "" && step.feed === lost;
  const before = step.ownWatts ?? 0;
  const own = isLost ? 0 : (after?.get(name) ?? (after === null ? before : 0));
  const others = Math.max(0, (step.reservedWatts ?? 0) - before);
  return (
    <tr class={isLost ? "lost" : undefined}>
      <th scope="row">
        <span class="step-name" style={{ "--depth": String(depth) }}>
          {children.length > 0 ? (
            <button type="button" class={isOpen ? "icon-button step-toggle open" : "icon-button step-toggle"} aria-expanded={isOpen} aria-label={`Steps below ${name}`} onClick={() => toggle(name)}>
              <Icon name="arrow" />
            </button>
          ) : (
            <span class="step-toggle" />
          )}
          <span class="name">{name}</span> <span class="dim small">{step.kind}</span>
        </span>
      </th>
      <td>{step.feed || <span class="dim">all</span>}</td>
      <td>{isLost ? <span class="dim">lost</span> : <StepBar permitted={step.deratedWatts ?? 0} own={own} others={others} />}</td>
      <td class="number">
        {isLost ? <span class="dim">0.0 kW</span> : kw(own)}
        {!isLost && own > before + 0.5 && <span class="step-more"> +{kw(own - before)}</span>}
      </td>
      <td class="number wide">{kw(step.reservedWatts ?? 0)}</td>
      <td class="number wide">{step.measuredWatts === undefined ? <span class="dim">unknown</span> : kw(step.measuredWatts)}</td>
      <td class="number">{kw(step.deratedWatts ?? 0)}</td>
      <td class="number wide">{count(step.nodes ?? 0)}</td>
      <td class="number wide">{step.startsAtOnce ? count(step.startsAtOnce) : "all"}</td>
    </tr>
  );
}

/** The load of these nodes, after that of the others. */
function StepBar({ permitted, own, others }: { permitted: number; own: number; others: number }) {
  const most = Math.max(permitted, own + others, 1);
  const share = (watts: number) => `${(watts / most) * 100}%`;
  const text = `others ${kw(others)}, these ${kw(own)}, permitted ${kw(permitted)}`;
  return (
    <div class="power-bar thin" role="img" aria-label={text} title={text}>
      <span class="permitted" style={{ width: share(permitted) }} />
      <span class="others" style={{ width: share(others) }} />
      <span class={own + others > permitted + 0.5 ? "own bad" : "own"} style={{ left: share(others), width: share(own) }} />
    </div>
  );
}
