import type { SkuCapacity } from "../api";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { Ago, Dash } from "../parts/text";
import { link } from "../router";
import { mayCall, ownCustomer } from "../roles";
import { count, plural } from "../units";
import { useCall } from "../use-call";

const SECONDS_AN_HOUR = 3_600;
const POLL_MS = 30_000;

/** `25.92 USD`: the price of one node an hour. The API has the price of a second. */
export function hourly({ pricePerSecond, currency }: SkuCapacity, nodes = 1): string {
  if (!pricePerSecond) {
    return "";
  }
  const price = Number(pricePerSecond) * SECONDS_AN_HOUR * nodes;
  return `${price.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ${currency ?? ""}`.trim();
}

/** What a customer can have now, by SKU. */
export function CapacityPanel({ customer }: { customer: string }) {
  const isOwn = ownCustomer() !== "";
  const isWanted = isOwn || customer !== "";
  const { data, error, reload } = useCall("ClusterService/GetCapacity", { customer }, { everyMs: POLL_MS, isWanted });
  const canOrder = mayCall("ClusterService/CreateCluster");
  const rows = (data?.skus ?? []).flatMap((sku) => (sku.fabrics ?? []).map((fabric) => ({ sku, fabric })));
  return (
    <Panel
      title={isOwn ? "What you can have now" : `What ${customer || "a customer"} can have now`}
      side={
        data && (
          <span>
            as of <Ago time={data.time} />
          </span>
        )
      }
      isFlush
    >
      <Problem error={error} doing="read the capacity" retry={reload} />
      {!isWanted && <Empty title="Choose a customer: the site's promises to it decide what fits" />}
      {isWanted && data === undefined && error === null && <Loading what="the capacity" />}
      {data !== undefined && rows.length === 0 && (
        <Empty title="The site has no SKU: rackwright site apply adds equipment" />
      )}
      {rows.length > 0 && (
        <Table
          caption="Capacity by SKU"
          rows={rows}
          keyOf={({ sku, fabric }) => `${sku.sku} ${fabric.bandwidth}`}
          columns={[
            { title: "SKU", cell: ({ sku }) => <span class="name">{sku.sku}</span> },
            { title: "fabric", cell: ({ fabric }) => fabric.bandwidth },
            {
              title: "largest cluster",
              isNumber: true,
              cell: ({ sku, fabric }) => (
                <Largest
                  sku={sku.sku ?? ""}
                  nodes={fabric.largestClusterNodes ?? 0}
                  bandwidth={fabric.bandwidth ?? ""}
                  customer={customer}
                  canOrder={canOrder}
                />
              ),
            },
            { title: "free nodes", isNumber: true, cell: ({ sku }) => count(sku.freeNodes ?? 0) },
            { title: "price of a node-hour", isNumber: true, isWide: true, cell: ({ sku }) => hourly(sku) || <Dash /> },
          ]}
        />
      )}
      {isOwn && !canOrder && data !== undefined && (
        <p class="note dim">The site's operators create clusters for you.</p>
      )}
    </Panel>
  );
}

function Largest({
  sku,
  nodes,
  bandwidth,
  customer,
  canOrder,
}: {
  sku: string;
  nodes: number;
  bandwidth: string;
  customer: string;
  canOrder: boolean;
}) {
  if (nodes === 0) {
    return <span class="dim">none fits</span>;
  }
  const text = plural(nodes, "node");
  const query = { customer, sku, bandwidth, nodes: String(nodes) };
  return canOrder ? (
    <a class="count" href={link("/clusters/new", query)} aria-label={`Order ${text} of ${sku}, ${bandwidth}`}>
      {text}
    </a>
  ) : (
    <>{text}</>
  );
}
