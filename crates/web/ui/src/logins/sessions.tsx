import type { Session } from "../api";
import { change, pages } from "../client";
import { short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { Ago, Until } from "../parts/text";
import { whyNotCall } from "../roles";
import { signOutHere } from "../session";
import { useWork } from "../use-call";

/** `Firefox on Linux`: the browser's own name for itself, shortened where it is known. */
function clientText(client: string | undefined): string {
  const text = client ?? "";
  const [browser] = /Edg|Firefox|Chrome|Safari/.exec(text) ?? [];
  const [system] = /Windows|Android|iPhone|iPad|Mac OS|Linux/.exec(text) ?? [];
  return browser && system ? `${browser === "Edg" ? "Edge" : browser} on ${system}` : text || "unknown";
}

/** Browsers that are logged in to the web console. */
export function SessionsPanel() {
  const { data, error, reload } = useWork(
    (signal): Promise<Session[]> =>
      pages("SessionService/ListSessions", { pageSize: 1_000 }, ({ sessions }) => sessions, signal),
    "sessions",
    { everyMs: 15_000 },
  );
  const list = [...(data ?? [])].sort((a, b) => Number(b.current ?? false) - Number(a.current ?? false));
  return (
    <Panel title="Browsers" isFlush>
      <Problem error={error} doing="list the sessions" retry={reload} />
      {data === undefined && error === null && <Loading what="the sessions" />}
      {data !== undefined && list.length === 0 && <Empty title="No browser is logged in" />}
      {list.length > 0 && (
        <Table
          caption="Sessions of browsers"
          rows={list}
          keyOf={({ name }) => name ?? ""}
          columns={[
            { title: "member", cell: ({ member }) => <span class="name">{member}</span> },
            {
              title: "browser, not verified",
              cell: ({ client, current }) => (
                <span title={client}>
                  {clientText(client)}
                  {current && <strong> (this one)</strong>}
                </span>
              ),
            },
            { title: "address", isWide: true, cell: ({ address }) => <span class="name">{address}</span> },
            { title: "began", isWide: true, cell: ({ createTime }) => <Ago time={createTime} /> },
            { title: "last use", cell: ({ lastUseTime }) => <Ago time={lastUseTime} /> },
            { title: "ends", isWide: true, cell: ({ expireTime }) => <Until time={expireTime} /> },
            {
              title: "actions",
              cell: (one) => (
                <Button
                  kind="quiet"
                  why={whyNotCall("SessionService/EndSession")}
                  onClick={() => openDialog((close) => <EndDialog one={one} close={close} changed={reload} />)}
                >
                  End
                </Button>
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function EndDialog({ one, close, changed }: { one: Session; close(): void; changed(): void }) {
  return (
    <ConfirmDialog
      title="End the session"
      close={close}
      effect={
        one.current
          ? "This browser has to log in again."
          : `The browser of ${one.member} at ${one.address} has to log in again. Its open streams and consoles end at once.`
      }
      isDanger
      commands={[`rackwright session end ${short("sessions", one.name)}`]}
      send={() => change("SessionService/EndSession", { name: one.name })}
      done={() => (one.current ? signOutHere() : changed())}
    />
  );
}
