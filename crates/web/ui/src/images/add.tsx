import { useState } from "preact/hooks";
import { shellWord } from "../names";
import { Button } from "../parts/button";
import { Dialog, openDialog } from "../parts/dialog";
import { AreaField, Field, TextField } from "../parts/form";
import { AsCli } from "../parts/panel";
import { whyNotCall } from "../roles";
import { bytes } from "../units";
import { startUpload, type Wanted } from "./upload";

const EMPTY: Wanted = { imageId: "", sha256: "", minisignSignature: "", osId: "", osVersion: "", kernel: "" };

/** Opens the dialog of a new image. */
export function AddImage() {
  const why = whyNotCall("ImageService/StartUpload");
  return (
    <Button kind="primary" why={why} onClick={() => openDialog((close) => <AddDialog close={close} />)}>
      Add an image
    </Button>
  );
}

function AddDialog({ close }: { close(): void }) {
  const [file, setFile] = useState<File | null>(null);
  const [wanted, setWanted] = useState(EMPTY);
  const set = (changes: Partial<Wanted>) => setWanted({ ...wanted, ...changes });
  const why = whyNot(file, wanted);
  const begin = () => {
    if (why === "" && file !== null) {
      startUpload(file, wanted);
      close();
    }
  };
  return (
    <Dialog
      title="Add an image"
      close={close}
      onSubmit={begin}
      foot={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind="primary" why={why}>
            Upload
          </Button>
        </>
      }
    >
      <Field label="File" help={file ? bytes(String(file.size)) : "A raw, qcow2, zstd, gzip or xz file"}>
        {(id) => (
          <input id={id} type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
        )}
      </Field>
      <TextField
        label="Name"
        help="An existing image gets a new version"
        value={wanted.imageId}
        set={(imageId) => set({ imageId })}
      />
      <TextField
        label="SHA-256"
        help="64 hex digits, from the file's origin. Empty: computed here, which proves only the transfer"
        value={wanted.sha256}
        set={(sha256) => set({ sha256 })}
      />
      <details>
        <summary>Signature and system</summary>
        <AreaField
          label="minisign signature"
          help="The text of the .minisig file"
          value={wanted.minisignSignature ?? ""}
          set={(minisignSignature) => set({ minisignSignature })}
        />
        <TextField
          label="ID of the operating system"
          help="Such as debian; a pattern that validation compares"
          value={wanted.osId ?? ""}
          set={(osId) => set({ osId })}
        />
        <TextField
          label="Version of the operating system"
          help="Such as 12"
          value={wanted.osVersion ?? ""}
          set={(osVersion) => set({ osVersion })}
        />
        <TextField
          label="Release of the kernel"
          help="Such as 6.1.*"
          value={wanted.kernel ?? ""}
          set={(kernel) => set({ kernel })}
        />
      </details>
      <AsCli commands={[command(file, wanted)]} />
    </Dialog>
  );
}

function whyNot(file: File | null, { imageId, sha256 }: Wanted): string {
  if (file === null) {
    return "Choose a file";
  }
  if (file.size === 0) {
    return "The file is empty";
  }
  if (imageId.trim() === "") {
    return "Give a name";
  }
  return /^([0-9a-f]{64})?$/i.test(sha256.trim()) ? "" : "A SHA-256 has 64 hex digits";
}

function command(file: File | null, { imageId, sha256, minisignSignature, osId, osVersion, kernel }: Wanted): string {
  const name = file === null ? "FILE" : shellWord(file.name);
  const options: [string, string | undefined][] = [
    ["--sha256", sha256],
    ["--signature", minisignSignature && `${file?.name ?? "FILE"}.minisig`],
    ["--os-id", osId],
    ["--os-version", osVersion],
    ["--kernel", kernel],
  ];
  const given = options.filter(([, value]) => value).map(([option, value]) => ` ${option} ${shellWord(value ?? "")}`);
  return `rackwright image add ${shellWord(imageId || "NAME")} --file ${name}${given.join("")}`;
}
