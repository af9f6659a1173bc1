import type { SumUsageResponse, UsageSum } from "../api";
import { save } from "../clusters/tar";
import { short } from "../names";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Dash, ResourceLink } from "../parts/text";
import { stamp } from "../time";
import type { Called } from "../use-call";
import { csv, faultOf, hours } from "./figures";

const OPEN = { word: "in use", tone: "busy", key: "busy" } as const;
const ENDED = { word: "ended", tone: "dim", key: "dim" } as const;

export function SumsPanel({
  called,
  month,
  isOwn,
}: {
  called: Called<SumUsageResponse>;
  month: string;
  isOwn: boolean;
}) {
  const { data, error, reload } = called;
  const sums = data?.sums ?? [];
  const fault = data ? faultOf(data) : "";
  const download = () => save(`usage-${month}.csv`, new Blob([csv(sums)], { type: "text/csv" }));
  return (
    <Panel
      title={isOwn ? "Usage by cluster" : "Usage by customer and cluster"}
      side={
        sums.length > 0 &&
        fault === "" && (
          <Button icon="down" onClick={download}>
            CSV
          </Button>
        )
      }
      isFlush
    >
      <Problem error={error} doing="read the usage" retry={reload} />
      {fault !== "" && (
        <p class="note bad-text" role="alert">
          The figures are not shown, because the answer is not consistent: {fault}.
        </p>
      )}
      {data === undefined && error === null && <Loading what="the usage" />}
      {data !== undefined && sums.length === 0 && <Empty title="No node was in use in this month" />}
      {data !== undefined && sums.length > 0 && fault === "" && <Sums sums={sums} total={data.total} isOwn={isOwn} />}
      {data?.total?.open && fault === "" && (
        <p class="note dim">Nodes that are still in use are counted up to {stamp(data.endTime)}.</p>
      )}
    </Panel>
  );
}

function Hours({ seconds }: { seconds: string | undefined }) {
  return <span title={`${seconds ?? "0"} node-seconds`}>{hours(seconds)}</span>;
}

function Sums({ sums, total, isOwn }: { sums: UsageSum[]; total: UsageSum | undefined; isOwn: boolean }) {
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="Usage in node-hours">
      <table class="table">
        <caption class="sr">Usage in node-hours</caption>
        <thead>
          <tr>
            {!isOwn && <th scope="col">customer</th>}
            <th scope="col">cluster</th>
            <th scope="col">SKU</th>
            <th scope="col" class="number wide">
              reserved
            </th>
            <th scope="col" class="number wide">
              on demand
            </th>
            <th scope="col" class="number">
              node-hours
            </th>
            <th scope="col">state</th>
          </tr>
        </thead>
        <tbody>
          {sums.map((sum) => (
            <tr key={`${sum.customer} ${sum.cluster} ${sum.sku}`}>
              {!isOwn && <td>{sum.customer || <span class="dim">no customer</span>}</td>}
              <td>
                {sum.cluster ? (
                  <ResourceLink name={sum.cluster} shown={short("clusters", sum.cluster)} />
                ) : (
                  <span class="dim">single nodes</span>
                )}
              </td>
              <td>{sum.sku || <Dash />}</td>
              <td class="number wide">
                <Hours seconds={sum.reservedNodeSeconds} />
              </td>
              <td class="number wide">
                <Hours seconds={sum.onDemandNodeSeconds} />
              </td>
              <td class="number">
                <Hours seconds={sum.nodeSeconds} />
              </td>
              <td>
                <StateBadge state={sum.open ? OPEN : ENDED} />
              </td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" colSpan={isOwn ? 2 : 3}>
              total
            </th>
            <td class="number wide">
              <Hours seconds={total?.reservedNodeSeconds} />
            </td>
            <td class="number wide">
              <Hours seconds={total?.onDemandNodeSeconds} />
            </td>
            <td class="number">
              <Hours seconds={total?.nodeSeconds} />
            </td>
            <td />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}
