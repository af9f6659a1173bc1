import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import type { Explanation, Node } from "../api";
import { rowOf } from "../fleet/row";
import { term } from "../fleet/filter";
import { useNodes } from "../fleet/store";
import { Activity } from "../node/activity";
import { BootTrace } from "../node/boot";
import { Certificates } from "../node/certificates";
import { ConsoleView } from "../node/console";
import { NodeHead } from "../node/head";
import { InventoryView } from "../node/inventory";
import { Overview } from "../node/overview";
import { SettingsView } from "../node/settings";
import type { NodeView } from "../node/view";
import { Validation } from "../node/validation";
import { AsCli } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { link, location } from "../router";
import type { PageProps } from "../routes";
import { isOfSite } from "../session";
import { useCall } from "../use-call";

interface Tab {
  key: string;
  title: string;
  view: FunctionComponent<{ of: NodeView }>;
  /** Only members of the site may make its calls. */
  isForSite: boolean;
  /** Empty: the command for the whole node. */
  cli: string;
}

const TABS: Tab[] = [
  { key: "", title: "Overview", view: Overview, isForSite: false, cli: "" },
  {
    key: "activity",
    title: "Operations and events",
    view: Activity,
    isForSite: false,
    cli: "rackwright events --follow --target nodes/ID",
  },
  { key: "console", title: "Console", view: ConsoleView, isForSite: false, cli: "rackwright node console ID" },
  { key: "inventory", title: "Inventory", view: InventoryView, isForSite: true, cli: "rackwright node inventory ID" },
  { key: "validation", title: "Validation", view: Validation, isForSite: false, cli: "rackwright node reports ID" },
  {
    key: "certificates",
    title: "Erase certificates",
    view: Certificates,
    isForSite: true,
    cli: "rackwright node certificates ID --verify",
  },
  { key: "boot", title: "Boot trace", view: BootTrace, isForSite: true, cli: "rackwright boot trace ID" },
  {
    key: "settings",
    title: "Settings and firmware",
    view: SettingsView,
    isForSite: true,
    cli: "rackwright node settings ID",
  },
];

export function NodePage({ params }: PageProps) {
  const id = params["name"] ?? "";
  const name = `nodes/${id}`;
  const store = useNodes(term("name", id));
  const version = store.version.value;
  const ofSite = isOfSite();
  const got = useCall("NodeService/GetNode", { name }, { everyMs: 30_000 });
  const explained = useCall("NodeService/ExplainNode", { name }, { isWanted: ofSite, everyMs: 10_000 });
  useEffect(() => {
    if (version > 1) {
      got.reload();
      explained.reload();
    }
  }, [version]);
  const isGone = store.isSynced.value && store.rows.size === 0;
  if (got.error?.code === "not_found" || (isGone && got.data !== undefined)) {
    return <Gone id={id} />;
  }
  const node = newest(got.data, explained.data);
  if (node === undefined) {
    return (
      <>
        <h1>{id}</h1>
        {got.error ? (
          <Problem error={got.error} doing={`read ${id}`} retry={got.reload} />
        ) : (
          <Loading what={id} lines={8} />
        )}
      </>
    );
  }
  const view: NodeView = {
    id,
    node,
    inventory: got.data?.status?.inventory,
    row: rowOf(node),
    explanation: explained.data,
    explainError: explained.error,
    reload: got.reload,
  };
  return <Shown view={view} />;
}

/** The node by the call that read it last. */
function newest(got: Node | undefined, explained: Explanation | undefined): Node | undefined {
  const node = explained?.node;
  const version = (some: Node | undefined) => Number(some?.metadata?.resourceVersion ?? 0);
  return node !== undefined && version(node) >= version(got) ? node : got;
}

function Shown({ view }: { view: NodeView }) {
  const { query } = location.value;
  const tabs = TABS.filter((tab) => isOfSite() || !tab.isForSite);
  const current = tabs.find((tab) => tab.key === (query.get("tab") ?? "")) ?? TABS[0];
  const View = current?.view ?? Overview;
  const path = `/nodes/${encodeURIComponent(view.id)}`;
  return (
    <>
      <NodeHead of={view} />
      <nav class="tabs" aria-label={`Parts of ${view.id}`}>
        {tabs.map(({ key, title }) => (
          <a key={key} href={link(path, { tab: key })} aria-current={key === current?.key ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <View of={view} />
      <AsCli commands={commands(current?.cli ?? "", view.id)} />
    </>
  );
}

function commands(cli: string, id: string): string[] {
  const whole = isOfSite() ? "rackwright node explain ID" : "rackwright node get ID";
  return [cli || whole, "rackwright node watch ID"].map((command) => command.replace("ID", id));
}

function Gone({ id }: { id: string }) {
  return (
    <>
      <h1>{id}</h1>
      <Empty title={`Node ${id} does not exist`}>
        <p>
          It was deleted, it was never enrolled, or you may not see it. <a href="/nodes">Show all nodes</a>
        </p>
      </Empty>
    </>
  );
}
