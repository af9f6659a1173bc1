import type { ImageVersion } from "../api";
import { change } from "../client";
import { imageShort, last, short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { openDialog } from "../parts/dialog";
import { Table } from "../parts/table";
import { Ago, Copy, Dash, ResourceLink } from "../parts/text";
import { mayCall, whyNotCall } from "../roles";
import { bytes, plural } from "../units";
import type { Use, Uses } from "./uses";

export function formatWord(format: ImageVersion["sourceFormat"]): string {
  const word = (format ?? "").replace("IMAGE_FORMAT_", "").toLowerCase();
  return word === "unspecified" ? "" : word;
}

/** `ID=debian VERSION_ID=12 kernel=6.1.*`, as the CLI; empty: the image says nothing. */
function systemText({ osId, osVersion, kernel }: ImageVersion): string {
  const parts = [osId && `ID=${osId}`, osVersion && `VERSION_ID=${osVersion}`, kernel && `kernel=${kernel}`];
  return parts.filter(Boolean).join(" ");
}

export function VersionTable({ versions, uses, changed }: { versions: ImageVersion[]; uses: Uses; changed(): void }) {
  const remove = {
    title: "actions",
    cell: (version: ImageVersion) => (
      <Delete
        name={version.name ?? ""}
        use={uses.of.get(imageShort(version.name))}
        isKnown={uses.isKnown}
        changed={changed}
      />
    ),
  };
  return (
    <Table
      caption="Versions, newest first"
      rows={versions}
      keyOf={({ name }) => name ?? ""}
      columns={[
        {
          title: "version",
          cell: ({ name }) => <Copy text={imageShort(name)} shown={last(name).slice(0, 15)} label="Copy the name" />,
        },
        { title: "imported", cell: ({ createTime }) => <Ago time={createTime} bare /> },
        { title: "disk", isNumber: true, cell: ({ logicalBytes }) => bytes(logicalBytes) },
        { title: "data", isNumber: true, isWide: true, cell: ({ dataBytes }) => bytes(dataBytes) },
        {
          title: "stored",
          isNumber: true,
          cell: (version) => (
            <span title={`${plural(version.chunks ?? 0, "chunk")}, compressed`}>{bytes(version.compressedBytes)}</span>
          ),
        },
        {
          title: "system",
          isWide: true,
          cell: (version) => systemText(version) || <span class="dim">no statement</span>,
        },
        { title: "source", isWide: true, cell: (version) => <Source version={version} /> },
        {
          title: "signed by",
          isWide: true,
          cell: ({ signedBy }) =>
            signedBy ? <span class="name">{signedBy}</span> : <span class="dim">not signed</span>,
        },
        { title: "used by", cell: ({ name }) => <UsedBy use={uses.of.get(imageShort(name))} isKnown={uses.isKnown} /> },
        ...(mayCall("ImageService/DeleteImage") ? [remove] : []),
      ]}
    />
  );
}

function Source({ version }: { version: ImageVersion }) {
  const { sourceSha256 } = version;
  return (
    <>
      {formatWord(version.sourceFormat)}{" "}
      {sourceSha256 && (
        <Copy text={`sha256:${sourceSha256}`} shown={`sha256:${sourceSha256.slice(0, 8)}…`} label="Copy the digest" />
      )}
    </>
  );
}

function UsedBy({ use, isKnown }: { use: Use | undefined; isKnown: boolean }) {
  if (use === undefined) {
    return isKnown ? <Dash /> : <span class="dim">unknown</span>;
  }
  return (
    <>
      {use.nodes > 0 && <span>{plural(use.nodes, "node")}</span>}
      {use.clusters.map((name, index) => (
        <span key={name}>
          {(index > 0 || use.nodes > 0) && ", "}
          <ResourceLink name={`clusters/${name}`} />
        </span>
      ))}
    </>
  );
}

/** Deletes an image, or one version of it. */
export function Delete({
  name,
  use,
  isKnown,
  changed,
  label = "Delete",
}: {
  name: string;
  use: Use | undefined;
  isKnown: boolean;
  changed(): void;
  label?: string;
}) {
  const isVersion = name.includes("/versions/");
  const word = isVersion ? imageShort(name) : short("images", name);
  const used =
    use === undefined
      ? ""
      : `It is used by ${[use.nodes > 0 && plural(use.nodes, "node"), use.clusters.length > 0 && plural(use.clusters.length, "cluster")].filter(Boolean).join(" and ")}`;
  const open = () =>
    openDialog((close) => (
      <ConfirmDialog
        title={isVersion ? "Delete the version" : `Delete ${word}`}
        close={close}
        effect={`${isVersion ? "The version" : "The image with all its versions"} is deleted, and its data that no other version has. The control plane refuses this while a node has it or is getting it.${isKnown ? "" : " Its uses are not known yet."}`}
        loses={`${isVersion ? "the version" : "the image"} ${word}: clusters can no longer return to it`}
        typed={isVersion ? word : short("images", name)}
        commands={[`rackwright image delete ${short("images", name).replace("/versions/", "@")}`]}
        send={() => change("ImageService/DeleteImage", { name })}
        done={changed}
      />
    ));
  return (
    <Button kind="quiet" why={whyNotCall("ImageService/DeleteImage") || used} onClick={open}>
      {label}
    </Button>
  );
}
