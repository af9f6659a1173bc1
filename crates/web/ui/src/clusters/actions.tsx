import type { Cluster } from "../api";
import type { Method } from "../client";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { mayCall, whyNotCall } from "../roles";
import { DeleteDialog, LeaseDialog, ReleaseDialog, ReplaceDialog, RetryDialog } from "./dialogs";
import { ReimageDialog, ResumeDialog, RollBackDialog } from "./reimage";
import { ResizeDialog } from "./resize";
import { isInUse, nameOf, stateOf, type ClusterStateWord } from "./words";

export interface DialogProps {
  cluster: Cluster;
  close(): void;
  /** Reads the cluster again. */
  changed(): void;
}

interface Action {
  label: string;
  method: Method;
  /** Why it cannot be done now; empty: it can. */
  cannot(cluster: Cluster, state: ClusterStateWord): string;
  Dialog(props: DialogProps): preact.JSX.Element;
  isDanger?: boolean;
  /** Shown only where it can be done. */
  isRare?: boolean;
}

const isOver = (state: ClusterStateWord) => state === "releasing" || state === "released";

const ACTIONS: Action[] = [
  {
    label: "Resume",
    method: "ClusterService/ResumeClusterReimage",
    cannot: ({ status }, state) =>
      state === "reimaging" && status?.rollout?.stopped ? "" : "No reimage of it has stopped",
    Dialog: ResumeDialog,
    isRare: true,
  },
  {
    label: "Roll back",
    method: "ClusterService/RollBackCluster",
    cannot: ({ status }, state) =>
      state === "reimaging" && status?.rollout?.isBack
        ? "It goes back to its former image already"
        : isInUse(state)
          ? ""
          : "The cluster is not in use",
    Dialog: RollBackDialog,
    isRare: true,
  },
  {
    label: "Retry",
    method: "ClusterService/RetryCluster",
    cannot: (_, state) => (state === "failed" ? "" : "Only a failed cluster can be built again"),
    Dialog: RetryDialog,
    isRare: true,
  },
  {
    label: "Resize",
    method: "ClusterService/ResizeCluster",
    cannot: (_, state) =>
      state === "reimaging"
        ? "Its nodes cannot change while it is reimaged"
        : ["building", "validating", "ready", "degraded", "resizing"].includes(state)
          ? ""
          : `The cluster is ${state}`,
    Dialog: ResizeDialog,
  },
  {
    label: "Reimage",
    method: "ClusterService/ReimageCluster",
    cannot: (_, state) =>
      isInUse(state)
        ? ""
        : ["reserved", "building", "validating"].includes(state)
          ? "Its first image is not on its nodes yet"
          : `The cluster is ${state}`,
    Dialog: ReimageDialog,
  },
  {
    label: "Replace a node",
    method: "ClusterService/ReplaceClusterNode",
    cannot: (_, state) => (isOver(state) || state === "failed" ? `The cluster is ${state}` : ""),
    Dialog: ReplaceDialog,
  },
  {
    label: "Lease",
    method: "ClusterService/SetClusterLease",
    cannot: (_, state) => (isOver(state) ? "The lease is over" : ""),
    Dialog: LeaseDialog,
  },
  {
    label: "Release",
    method: "ClusterService/ReleaseCluster",
    cannot: (_, state) => (isOver(state) ? `The cluster is ${state}` : ""),
    Dialog: ReleaseDialog,
    isDanger: true,
  },
  {
    label: "Delete",
    method: "ClusterService/DeleteCluster",
    cannot: (_, state) => (state === "released" ? "" : "Only a released cluster can be deleted"),
    Dialog: DeleteDialog,
    isRare: true,
  },
];

/** What the member may do with the cluster. Calls that the role may never make are left out. */
export function ClusterActions({ cluster, changed }: { cluster: Cluster; changed(): void }) {
  const state = stateOf(cluster);
  const shown = ACTIONS.filter(
    ({ method, isRare, cannot }) => mayCall(method) && (!isRare || cannot(cluster, state) === ""),
  );
  return (
    <>
      {shown.map(({ label, method, cannot, Dialog, isDanger }) => (
        <Button
          key={label}
          kind={isDanger ? "danger" : "plain"}
          why={whyNotCall(method) || cannot(cluster, state)}
          onClick={() =>
            openDialog((close) => <Dialog key={nameOf(cluster)} cluster={cluster} close={close} changed={changed} />)
          }
        >
          {label}
        </Button>
      ))}
    </>
  );
}
