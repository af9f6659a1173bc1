import { Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Ago, CountLink, NodeLink } from "../parts/text";
import { link } from "../router";
import { count, plural } from "../units";
import { nodeState, NODE_STATES, type NodeStateWord } from "../words";
import type { Counts } from "./counts";
import { term } from "./filter";

const SHOWN_WAITS = 12;

function present(states: Map<NodeStateWord, number>): NodeStateWord[] {
  return [...NODE_STATES, "unknown" as const].filter((state) => (states.get(state) ?? 0) > 0);
}

function stateQuery(state: NodeStateWord, sku = ""): Record<string, string> {
  const terms = [term("state", state), sku === "" ? "" : term("sku", sku)];
  return { filter: terms.filter(Boolean).join(" AND ") };
}

/** One bar over all nodes, and below it each state with its number. */
export function StateStrip({ counts }: { counts: Counts }) {
  const states = present(counts.states);
  return (
    <section class="strip" aria-label="Nodes by state">
      <div class="strip-bar" aria-hidden="true">
        {states.map((state) => (
          <span key={state} data-state={state} style={{ flexGrow: String(counts.states.get(state) ?? 0) }} />
        ))}
      </div>
      <ul class="strip-states">
        {states.map((state) => (
          <li key={state} data-state={state}>
            <a href={link("/nodes", stateQuery(state))}>
              <span class="figure">{count(counts.states.get(state) ?? 0)}</span>
              <StateBadge state={nodeState(state)} />
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** States by SKU. */
export function SkuPanel({ counts }: { counts: Counts }) {
  const states = present(counts.states);
  return (
    <Panel title="SKUs" side={plural(counts.skus.size, "SKU")} isFlush>
      <div class="table-scroll natural" tabIndex={0} role="group" aria-label="Nodes by SKU and state">
        <table class="table">
          <caption class="sr">Nodes by SKU and state</caption>
          <thead>
            <tr>
              <th scope="col">SKU</th>
              {states.map((state) => (
                <th key={state} scope="col" class="number">
                  {state}
                </th>
              ))}
              <th scope="col" class="number">
                all
              </th>
            </tr>
          </thead>
          <tbody>
            {[...counts.skus].map(([sku, of]) => (
              <SkuRow key={sku} sku={sku} of={of} states={states} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function SkuRow({ sku, of, states }: { sku: string; of: Map<NodeStateWord, number>; states: NodeStateWord[] }) {
  const all = [...of.values()].reduce((sum, some) => sum + some, 0);
  return (
    <tr>
      <th scope="row" class="name">
        {sku || "default"}
      </th>
      {states.map((state) => (
        <td key={state} class="number">
          {of.get(state) ? (
            <CountLink count={of.get(state) ?? 0} query={stateQuery(state, sku)} label={`${state} nodes of ${sku}`} />
          ) : (
            <span class="dim">-</span>
          )}
        </td>
      ))}
      <td class="number">
        <CountLink count={all} query={{ filter: term("sku", sku) }} label={`nodes of ${sku}`} />
      </td>
    </tr>
  );
}

/** What waits for what, the most frequent first. */
export function WaitsPanel({ counts }: { counts: Counts }) {
  const shown = counts.waits.slice(0, SHOWN_WAITS);
  const waiting = counts.waits.reduce((sum, wait) => sum + wait.count, 0);
  return (
    <Panel title="What nodes wait for" side={plural(waiting, "waiting node")} isFlush>
      {shown.length === 0 ? (
        <Empty title="No node waits for anything" />
      ) : (
        <div class="table-scroll" tabIndex={0} role="group" aria-label="What nodes wait for">
          <table class="table">
            <caption class="sr">What nodes wait for</caption>
            <thead>
              <tr>
                <th scope="col" class="number">
                  nodes
                </th>
                <th scope="col">wait for</th>
                <th scope="col">longest in its state</th>
              </tr>
            </thead>
            <tbody>
              {shown.map(({ kind, count: number, oldest, examples }) => (
                <tr key={kind}>
                  <td class="number">
                    <CountLink count={number} query={{ waits: kind }} label={`nodes wait for ${kind}`} />
                  </td>
                  <td>
                    {kind}
                    {number === 1 && examples[0] && (
                      <>
                        {" "}
                        (<NodeLink id={examples[0]} />)
                      </>
                    )}
                  </td>
                  <td>
                    <Ago time={oldest} bare />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {counts.waits.length > SHOWN_WAITS && (
        <p class="note dim">{plural(counts.waits.length - SHOWN_WAITS, "further kind")} of waits</p>
      )}
    </Panel>
  );
}
