import { useEffect } from "preact/hooks";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Problem } from "../parts/problem";
import { Bar, progressText } from "../parts/progress";
import { ResourceLink } from "../parts/text";
import { bytes } from "../units";
import { useCall } from "../use-call";
import { uploads, type State, type Upload } from "./upload";

/** The uploads of this browser page. */
export function Uploads({ changed }: { changed(): void }) {
  return (
    <>
      {uploads.value.map((upload) => (
        <Panel key={upload.wanted.imageId + upload.file.name} title={`Upload of ${upload.wanted.imageId}`}>
          <UploadView upload={upload} changed={changed} />
        </Panel>
      ))}
    </>
  );
}

const WORDS: Record<State["phase"], string> = {
  hashing: "Computing the SHA-256",
  sending: "Sending",
  paused: "Paused",
  waiting: "The connection was lost. The upload continues by itself",
  finishing: "All bytes are sent. The import begins",
  importing: "Importing",
  failed: "The upload has failed",
};

function UploadView({ upload, changed }: { upload: Upload; changed(): void }) {
  const { phase, done, error, operation } = upload.state.value;
  if (operation !== null) {
    return <Import name={operation.name ?? ""} remove={() => upload.remove()} changed={changed} />;
  }
  const total = upload.file.size;
  const isSending = phase === "sending" || phase === "waiting";
  return (
    <div class="upload">
      <p role="status">
        {WORDS[phase]}: {upload.file.name}, {bytes(String(done))} of {bytes(String(total))}
      </p>
      <Bar percent={(done / total) * 100} label={`Upload of ${upload.file.name}`} />
      <Problem error={error} doing={phase === "waiting" ? "send a part" : "upload the image"} />
      <div class="upload-buttons">
        {isSending && <Button onClick={() => upload.pause()}>Pause</Button>}
        {phase === "paused" && <Button onClick={() => upload.resume()}>Resume</Button>}
        <Button kind="quiet" onClick={() => upload.remove()}>
          {phase === "failed" ? "Remove" : "Stop the upload"}
        </Button>
      </div>
    </div>
  );
}

/** The operation that imports an uploaded file. */
function Import({ name, remove, changed }: { name: string; remove(): void; changed(): void }) {
  const { data, error } = useCall("OperationService/GetOperation", { name }, { everyMs: 2_000 });
  const isDone = data?.done === true;
  useEffect(() => {
    if (isDone) {
      changed();
    }
  }, [isDone]);
  const fault = data?.error?.message;
  const words = !isDone ? "Importing" : fault ? `The import has failed: ${fault}` : "The image is imported";
  return (
    <div class="upload">
      <p role="status" class={fault ? "bad-text" : undefined}>
        {words} {data && !isDone && progressText(data)} <ResourceLink name={name} shown="operation" />
      </p>
      {!isDone && <Bar percent={data?.progress?.percent ?? 0} label="Import" />}
      <Problem error={error} doing="read the operation" />
      {isDone && (
        <div class="upload-buttons">
          <Button onClick={remove}>Close</Button>
        </div>
      )}
    </div>
  );
}
