import { useEffect, useRef } from "preact/hooks";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { useCall } from "../use-call";
import { OperationTable } from "./operation-table";

const SHOWN = 20;
const POLL_MS = 5_000;

/** Operations of one resource. `version`: changes when there may be news. */
export function OperationsPanel({ target, version }: { target: string; version: string }) {
  const { data, error, reload } = useCall(
    "OperationService/ListOperations",
    { pageSize: SHOWN, filter: `target = "${target}"` },
    { everyMs: POLL_MS },
  );
  const seen = useRef(version);
  useEffect(() => {
    if (seen.current !== version) {
      seen.current = version;
      reload();
    }
  }, [version]);
  const list = data?.operations ?? [];
  return (
    <Panel title="Operations" side={data?.nextPageToken && `the newest ${SHOWN}`} isFlush>
      <Problem error={error} doing="read the operations" retry={reload} />
      {data === undefined && error === null && <Loading what="the operations" />}
      {data !== undefined && list.length === 0 && <Empty title="No operation of it is stored" />}
      {list.length > 0 && <OperationTable operations={list} hasTarget={false} changed={reload} />}
    </Panel>
  );
}
