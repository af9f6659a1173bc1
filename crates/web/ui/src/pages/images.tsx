import type { Image } from "../api";
import { pages } from "../client";
import { AddImage } from "../images/add";
import { Uploads } from "../images/upload-panel";
import { useImageUses, type Use, type Uses } from "../images/uses";
import { Delete, VersionTable } from "../images/version";
import { imageShort, labelsText, short } from "../names";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Copy } from "../parts/text";
import { mayCall } from "../roles";
import { bytes, plural } from "../units";
import { useWork } from "../use-call";

const UPLOAD = "rackwright image add NAME --file FILE";

export function ImagesPage() {
  const { data, error, reload } = useWork(
    (signal): Promise<Image[]> => pages("ImageService/ListImages", { pageSize: 1_000 }, ({ images }) => images, signal),
    "images",
    { everyMs: 10_000 },
  );
  const uses = useImageUses();
  const canAdd = mayCall("ImageService/StartUpload");
  return (
    <>
      <PageHead title="Images" side={<AddImage />}>
        {data ? subtitle(data) : "Reading the images"}
      </PageHead>
      <Uploads changed={reload} />
      <Problem error={error} doing="list the images" retry={reload} />
      {data === undefined && error === null && <Loading what="the images" lines={6} />}
      {data !== undefined && data.length === 0 && (
        <Empty title="There is no image yet">
          {canAdd ? <p>Add one here, or with the command below.</p> : <p>The site's operators upload images.</p>}
        </Empty>
      )}
      {(data ?? []).map((image) => (
        <ImagePanel key={image.name} image={image} uses={uses} changed={reload} />
      ))}
      {canAdd && (
        <Panel title="Upload by command">
          <p class="dim">
            The command uploads a raw, qcow2, zstd, gzip or xz file, checks its SHA-256 and its minisign signature if
            one is given, and waits for the import. An interrupted upload continues from the data that the control plane
            has. Options <code>--os-id</code>, <code>--os-version</code> and <code>--kernel</code> state the system that
            validation compares.
          </p>
          <p>
            <Copy text={UPLOAD} label="Copy the command" />
          </p>
          <p>
            <Copy text={`${UPLOAD} --os-id debian --os-version 12 --kernel '6.1.*'`} label="Copy the command" />
          </p>
        </Panel>
      )}
      <AsCli
        commands={[
          "rackwright image list",
          "rackwright image get NAME",
          ...(canAdd ? ["rackwright image delete NAME@DIGEST"] : []),
        ]}
      />
    </>
  );
}

function subtitle(images: Image[]): string {
  const versions = images.flatMap((image) => image.versions ?? []);
  const sum = (read: (version: (typeof versions)[number]) => string | undefined) =>
    bytes(String(versions.reduce((total, version) => total + Number(read(version) ?? 0), 0)));
  return `${plural(images.length, "image")} with ${plural(versions.length, "version")}: ${sum(({ logicalBytes }) => logicalBytes)} as disks, ${sum(({ compressedBytes }) => compressedBytes)} stored if no data were shared`;
}

function sumOf(image: Image, uses: Uses): Use | undefined {
  const some = (image.versions ?? []).flatMap(({ name }) => uses.of.get(imageShort(name)) ?? []);
  return some.length === 0
    ? undefined
    : { nodes: some.reduce((sum, { nodes }) => sum + nodes, 0), clusters: some.flatMap(({ clusters }) => clusters) };
}

function ImagePanel({ image, uses, changed }: { image: Image; uses: Uses; changed(): void }) {
  const name = short("images", image.name);
  const labels = labelsText(image.metadata?.labels);
  return (
    <Panel
      title={name}
      side={
        <>
          {labels && <span class="small">{labels}</span>}
          <span>{plural(image.versions?.length ?? 0, "version")}</span>
          {mayCall("ImageService/DeleteImage") && (
            <Delete
              name={image.name ?? ""}
              use={sumOf(image, uses)}
              isKnown={uses.isKnown}
              changed={changed}
              label="Delete the image"
            />
          )}
        </>
      }
      isFlush
      id={`image-${name}`}
    >
      <VersionTable versions={image.versions ?? []} uses={uses} changed={changed} />
    </Panel>
  );
}
