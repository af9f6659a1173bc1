import { useState } from "preact/hooks";
import type { SshKey } from "../api";
import { change } from "../client";
import { ConfirmDialog } from "../parts/confirm";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { AreaField } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { Ago, Copy } from "../parts/text";
import { mayCall, whyNotCall } from "../roles";
import { useCall } from "../use-call";

const KEY = /^(ssh-ed25519|ecdsa-sha2-\S+|sk-\S+) \S+/;

/** The caller's keys for `ssh NODE@SERVER`, the consoles of nodes. */
export function SshKeysPanel() {
  const { data, error, reload } = useCall("ConsoleService/ListSshKeys", {}, { everyMs: 30_000 });
  const keys = data?.keys ?? [];
  const add = () => openDialog((close) => <AddDialog close={close} changed={reload} />);
  return (
    <Panel
      title="Your SSH keys"
      side={
        mayCall("ConsoleService/AddSshKey") && (
          <Button why={whyNotCall("ConsoleService/AddSshKey")} onClick={add}>
            Add a key
          </Button>
        )
      }
      isFlush
    >
      <Problem error={error} doing="read your keys" retry={reload} />
      {data === undefined && error === null && <Loading what="the keys" />}
      {data !== undefined && keys.length === 0 && (
        <Empty title="You have no SSH key here">
          <p>
            With a key you reach the serial console of a node by <code>ssh NODE@SERVER</code>.
          </p>
        </Empty>
      )}
      {keys.length > 0 && (
        <Table
          caption="Your SSH keys"
          rows={keys}
          keyOf={({ fingerprint }) => fingerprint ?? ""}
          columns={[
            { title: "fingerprint", cell: ({ fingerprint }) => <Copy text={fingerprint ?? ""} /> },
            { title: "registered", cell: ({ createTime }) => <Ago time={createTime} /> },
            {
              title: "actions",
              cell: (key) => mayCall("ConsoleService/RemoveSshKey") && <Remove sshKey={key} changed={reload} />,
            },
          ]}
        />
      )}
    </Panel>
  );
}

function AddDialog({ close, changed }: { close(): void; changed(): void }) {
  const [text, setText] = useState("");
  const key = text.trim();
  const why =
    key === ""
      ? "Paste a public key"
      : /PRIVATE KEY/.test(key)
        ? "This is a private key: paste the public one"
        : KEY.test(key) && !key.includes("\n")
          ? ""
          : "One line with an Ed25519 or ECDSA key";
  return (
    <ConfirmDialog
      title="Add a key"
      close={close}
      effect="The key opens the consoles that you may use, until it is removed or your access ends."
      why={why}
      commands={["rackwright ssh-key add ~/.ssh/id_ed25519.pub"]}
      send={() => change("ConsoleService/AddSshKey", { publicKey: key })}
      done={changed}
    >
      <AreaField label="Public key" help="The line in ~/.ssh/id_ed25519.pub, for example." value={text} set={setText} />
    </ConfirmDialog>
  );
}

function Remove({ sshKey, changed }: { sshKey: SshKey; changed(): void }) {
  const open = () =>
    openDialog((close) => (
      <ConfirmDialog
        title="Remove the key"
        close={close}
        effect={`${sshKey.fingerprint} opens no console any more.`}
        isDanger
        commands={[`rackwright ssh-key remove ${sshKey.fingerprint}`]}
        send={() => change("ConsoleService/RemoveSshKey", { fingerprint: sshKey.fingerprint })}
        done={changed}
      />
    ));
  return (
    <Button kind="quiet" why={whyNotCall("ConsoleService/RemoveSshKey")} onClick={open}>
      Remove
    </Button>
  );
}
