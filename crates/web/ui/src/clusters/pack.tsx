import { useState } from "preact/hooks";
import type { HandoverFile } from "../api";
import { Button } from "../parts/button";
import { Dialog, openDialog } from "../parts/dialog";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Copy } from "../parts/text";
import { bytes, plural } from "../units";
import type { Called } from "../use-call";
import { save, tar } from "./tar";

const PURPOSES: [RegExp, string][] = [
  [/^README/, "a short list of the files"],
  [/^slurm\/topology/, "Slurm's plugin topology/tree"],
  [/^slurm\//, "Slurm's nodes, partition and GPUs"],
  [/^kubernetes\/nodes/, "labels of the nodes"],
  [/^kubernetes\//, "levels for topology-aware scheduling"],
  [/^nccl\/hostfile/, "hosts in the order of the fabric"],
  [/^nccl\//, "settings of NCCL and their reasons"],
  [/^ansible\//, "hosts with variables, in groups"],
  [/^fabric\/ports/, "every InfiniBand port with its leaf"],
  [/^fabric\//, "the partition and its key"],
  [/^power/, "power and cooling"],
  [/^validation/, "what was checked, failures first"],
];

function purpose(name: string): string {
  return PURPOSES.find(([pattern]) => pattern.test(name))?.[1] ?? "";
}

/** The files for the customer's team. */
export function PackPanel({ name, pack }: { name: string; pack: Called<HandoverFile[]> }) {
  const files = pack.data ?? [];
  const download = () => save(`${name}-handover.tar`, tar(`${name}-handover`, files));
  return (
    <Panel
      title="Hand-over pack"
      side={
        files.length > 0 && (
          <Button icon="down" onClick={download}>
            Download {plural(files.length, "file")}
          </Button>
        )
      }
    >
      <Problem error={pack.error} doing="make the hand-over pack" retry={pack.reload} />
      {pack.isLoading && pack.data === undefined && <Loading what="the hand-over pack" />}
      {pack.data === undefined && !pack.isLoading && pack.error === null && (
        <Empty title="A released cluster has no hand-over pack" />
      )}
      <ul class="files">
        {files.map((file) => (
          <li key={file.name}>
            <button
              type="button"
              class="link"
              onClick={() => openDialog((close) => <FileDialog file={file} close={close} />)}
            >
              {file.name}
            </button>
            <span class="dim small">{purpose(file.name ?? "")}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function FileDialog({ file, close }: { file: HandoverFile; close(): void }) {
  const [text] = useState(file.text ?? "");
  const name = file.name ?? "";
  const download = () => save(name.slice(name.lastIndexOf("/") + 1), new Blob([text], { type: "text/plain" }));
  return (
    <Dialog
      title={name}
      close={close}
      onSubmit={close}
      foot={
        <>
          <Copy text={text} shown={bytes(String(new Blob([text]).size))} label="Copy the text" />
          <Button onClick={download}>Download</Button>
          <Button type="submit">Close</Button>
        </>
      }
    >
      <pre class="file-text" tabIndex={0}>
        {text}
      </pre>
    </Dialog>
  );
}
