import { useState } from "preact/hooks";
import { change } from "../client";
import { shellWord, short } from "../names";
import { ConfirmDialog } from "../parts/confirm";
import { CheckField, SelectField, TextField } from "../parts/form";
import { navigate } from "../router";
import { stamp } from "../time";
import type { DialogProps } from "./actions";
import { kilowatts, nameOf, releaseLoses } from "./words";

export function ReleaseDialog({ cluster, close, changed }: DialogProps) {
  const name = nameOf(cluster);
  return (
    <ConfirmDialog
      title={`Release ${name}`}
      close={close}
      effect={`All nodes are erased, the partition's key is removed from the ports, and the links and ${kilowatts(cluster.status?.reservedWatts)} are freed.`}
      loses={releaseLoses(cluster)}
      typed={name}
      commands={[`rackwright cluster release ${name}`]}
      send={() => change("ClusterService/ReleaseCluster", { name: cluster.name })}
      done={changed}
    />
  );
}

export function DeleteDialog({ cluster, close }: DialogProps) {
  const name = nameOf(cluster);
  return (
    <ConfirmDialog
      title={`Delete ${name}`}
      close={close}
      effect="The record of the released cluster is deleted. Its nodes were erased by the release."
      loses="the record of the cluster, with its history"
      typed={name}
      commands={[`rackwright cluster delete ${name}`]}
      send={() => change("ClusterService/DeleteCluster", { name: cluster.name })}
      done={() => navigate("/clusters")}
    />
  );
}

export function RetryDialog({ cluster, close, changed }: DialogProps) {
  const name = nameOf(cluster);
  return (
    <ConfirmDialog
      title={`Retry ${name}`}
      close={close}
      effect="The cluster is built again, on the nodes and links that it has reserved."
      commands={[`rackwright cluster retry ${name}`]}
      send={() => change("ClusterService/RetryCluster", { name: cluster.name })}
      done={changed}
    />
  );
}

export function ReplaceDialog({ cluster, close, changed }: DialogProps) {
  const name = nameOf(cluster);
  const members = [...(cluster.status?.members ?? [])].sort(
    (a, b) => Number(b.standing === "lost") - Number(a.standing === "lost"),
  );
  const [node, setNode] = useState(members.find(({ standing }) => standing === "lost")?.node ?? "");
  const [reason, setReason] = useState("");
  const id = short("nodes", node);
  return (
    <ConfirmDialog
      title={id === "" ? "Replace a node" : `Replace ${id}`}
      close={close}
      effect="Another node that keeps every promise of the placement takes its place. The removed node is erased, and goes to quarantine."
      loses={id === "" ? "" : `all data on the drives of ${id}`}
      isDanger
      typed={id}
      why={id === "" ? "Choose a node" : reason.trim() === "" ? "Give a reason" : ""}
      commands={[`rackwright cluster replace ${name} ${id || "NODE"} --reason ${shellWord(reason || "TEXT")}`]}
      send={() => change("ClusterService/ReplaceClusterNode", { name: cluster.name, node, reason: reason.trim() })}
      done={changed}
    >
      <SelectField
        label="Node"
        value={node}
        set={setNode}
        options={[
          ["", "Choose a node"],
          ...members.map((member): [string, string] => [
            member.node ?? "",
            `${short("nodes", member.node)}, ${member.standing ?? "unknown"}${member.spare ? ", spare" : ""}`,
          ]),
        ]}
      />
      <TextField label="Reason" help="It is stored, and shown to others." value={reason} set={setReason} />
    </ConfirmDialog>
  );
}

/** The value of a datetime-local input, in UTC, as the API's time. */
function utc(local: string): string | undefined {
  const time = Date.parse(`${local}Z`);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

export function LeaseDialog({ cluster, close, changed }: DialogProps) {
  const name = nameOf(cluster);
  const end = cluster.spec?.leaseEnd;
  const [hasEnd, setHasEnd] = useState(true);
  const [local, setLocal] = useState(end === undefined ? "" : end.slice(0, 16));
  const wanted = hasEnd ? utc(local) : undefined;
  const isPast = wanted !== undefined && Date.parse(wanted) <= Date.now();
  return (
    <ConfirmDialog
      title={`Set the lease of ${name}`}
      close={close}
      effect={`The lease ${end === undefined ? "has no end now" : `ends ${stamp(end)} now`}. At the end of its lease the cluster is released, and all data on its nodes are erased.`}
      why={hasEnd && wanted === undefined ? "Give the end of the lease" : isPast ? "The end must be in the future" : ""}
      commands={[
        `rackwright cluster lease ${name} ${wanted ? `--until ${stamp(wanted)}` : hasEnd ? "--until TIME" : "--none"}`,
      ]}
      send={() => change("ClusterService/SetClusterLease", { name: cluster.name, leaseEnd: wanted })}
      done={changed}
    >
      <CheckField label="The lease has an end" value={hasEnd} set={setHasEnd} />
      {hasEnd && <TextField label="End, UTC" type="datetime-local" value={local} set={setLocal} />}
    </ConfirmDialog>
  );
}
