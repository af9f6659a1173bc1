import { useState } from "preact/hooks";
import type { Rollout } from "../api";
import { change } from "../client";
import { shellWord } from "../names";
import { ConfirmDialog } from "../parts/confirm";
import { AreaField, CheckField, TextField } from "../parts/form";
import { plural } from "../units";
import type { DialogProps } from "./actions";
import { ImageField, imageWord, lines } from "./image-field";
import { nameOf, rolloutText } from "./words";

/** A rollout as the fields have it. */
interface Wanted {
  unavailable: string;
  anyLeaf: boolean;
  failures: string;
  rollBack: boolean;
}

function wantedOf(rollout: Rollout | undefined): Wanted {
  return {
    unavailable: String(rollout?.maxUnavailable || 1),
    anyLeaf: rollout?.anyLeaf ?? false,
    failures: String(rollout?.maxFailures ?? 0),
    rollBack: rollout?.rollBack ?? false,
  };
}

/** A number, or a percentage of the nodes rounded down; null: neither. */
function share(text: string, nodes: number): number | null {
  const [, digits, percent] = /^\s*(\d+)\s*(%?)\s*$/.exec(text) ?? [];
  if (digits === undefined) {
    return null;
  }
  return percent === "%" ? Math.floor((nodes * Number(digits)) / 100) : Number(digits);
}

function rolloutOf(wanted: Wanted, nodes: number): Rollout | null {
  const [unavailable, failures] = [share(wanted.unavailable, nodes), share(wanted.failures, nodes)];
  if (unavailable === null || failures === null) {
    return null;
  }
  return {
    maxUnavailable: Math.max(1, unavailable),
    anyLeaf: wanted.anyLeaf,
    maxFailures: failures,
    rollBack: wanted.rollBack,
  };
}

function rolloutWords(wanted: Wanted): string {
  const parts = [
    `--max-unavailable ${wanted.unavailable.trim() || "N"}`,
    wanted.anyLeaf && "--any-leaf",
    wanted.failures.trim() !== "0" && `--max-failures ${wanted.failures.trim() || "N"}`,
    wanted.rollBack && "--roll-back",
  ];
  return parts.filter(Boolean).join(" ");
}

const NO_NUMBER = "Give numbers of nodes or percentages, such as 4 or 10%";

function RolloutFields({ wanted, set, nodes }: { wanted: Wanted; set(wanted: Wanted): void; nodes: number }) {
  const most = share(wanted.unavailable, nodes);
  return (
    <>
      <div class="field-row">
        <TextField
          label="Nodes out of use at a time"
          help={most === null ? "A number or a percentage" : `${plural(Math.max(1, most), "node")} of ${nodes}`}
          value={wanted.unavailable}
          set={(unavailable) => set({ ...wanted, unavailable })}
        />
        <TextField
          label="Nodes that may fail"
          help="With more, the reimage stops."
          value={wanted.failures}
          set={(failures) => set({ ...wanted, failures })}
        />
      </div>
      <CheckField
        label="Nodes of several leaves at the same time (else one leaf after the other)"
        value={wanted.anyLeaf}
        set={(anyLeaf) => set({ ...wanted, anyLeaf })}
      />
      <CheckField
        label="If more nodes fail, write the former image instead of stopping"
        value={wanted.rollBack}
        set={(rollBack) => set({ ...wanted, rollBack })}
      />
    </>
  );
}

function useRollout({ cluster }: DialogProps) {
  const nodes = cluster.status?.members?.length ?? 0;
  const [wanted, set] = useState(wantedOf(cluster.status?.rollout?.rollout));
  return {
    wanted,
    rollout: rolloutOf(wanted, nodes),
    nodes,
    fields: <RolloutFields wanted={wanted} set={set} nodes={nodes} />,
  };
}

export function ReimageDialog(props: DialogProps) {
  const { cluster, close, changed } = props;
  const name = nameOf(cluster);
  const { wanted, rollout, nodes, fields } = useRollout(props);
  const [image, setImage] = useState("");
  const [keys, setKeys] = useState("");
  const [userData, setUserData] = useState("");
  const words = [
    `rackwright cluster reimage ${name}`,
    image !== "" && `--image ${shellWord(imageWord(image))}`,
    lines(keys).length > 0 && "--ssh-key FILE",
    userData !== "" && "--user-data FILE",
    rolloutWords(wanted),
  ];
  return (
    <ConfirmDialog
      title={`Reimage ${name}`}
      close={close}
      effect="The image is written to all nodes, some at a time. A node is out of use until it has passed its checks and its customer has it again."
      loses={`all data on the drives of ${plural(nodes, "node")}, some nodes at a time`}
      typed={name}
      why={rollout === null ? NO_NUMBER : ""}
      commands={[words.filter(Boolean).join(" ")]}
      send={() =>
        change("ClusterService/ReimageCluster", {
          name: cluster.name,
          deployment: { image, sshAuthorizedKeys: lines(keys), userData },
          rollout: rollout ?? undefined,
        })
      }
      done={changed}
    >
      <ImageField value={image} set={setImage} none="The present image" />
      {fields}
      <AreaField label="SSH public keys, one in each line" help="Empty: unchanged." value={keys} set={setKeys} />
      <AreaField label="cloud-config" help="Empty: unchanged." value={userData} set={setUserData} />
    </ConfirmDialog>
  );
}

export function ResumeDialog(props: DialogProps) {
  const { cluster, close, changed } = props;
  const name = nameOf(cluster);
  const status = cluster.status?.rollout;
  const { wanted, rollout, nodes, fields } = useRollout(props);
  const left = Math.max(0, (status?.of ?? nodes) - (status?.done ?? 0));
  return (
    <ConfirmDialog
      title={`Resume the reimage of ${name}`}
      close={close}
      effect={`${status ? rolloutText(status) : "The reimage stopped"}. Nodes that failed are tried again, then the rest get the image.`}
      loses={`all data on the drives of ${plural(left, "node")} without the image`}
      typed={name}
      why={rollout === null ? NO_NUMBER : ""}
      commands={[`rackwright cluster resume ${name} ${rolloutWords(wanted)}`]}
      send={() => change("ClusterService/ResumeClusterReimage", { name: cluster.name, rollout: rollout ?? undefined })}
      done={changed}
    >
      {fields}
    </ConfirmDialog>
  );
}

export function RollBackDialog(props: DialogProps) {
  const { cluster, close, changed } = props;
  const name = nameOf(cluster);
  const { wanted, rollout, nodes, fields } = useRollout(props);
  return (
    <ConfirmDialog
      title={`Roll back ${name}`}
      close={close}
      effect="The former image is written to every node that does not have it, some nodes at a time."
      loses={`all data on the drives of the nodes with the new image, of ${plural(nodes, "node")}`}
      typed={name}
      why={rollout === null ? NO_NUMBER : ""}
      commands={[`rackwright cluster rollback ${name} ${rolloutWords(wanted)}`]}
      send={() => change("ClusterService/RollBackCluster", { name: cluster.name, rollout: rollout ?? undefined })}
      done={changed}
    >
      {fields}
    </ConfirmDialog>
  );
}
