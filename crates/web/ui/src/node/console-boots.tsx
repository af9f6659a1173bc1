import { useEffect, useState } from "preact/hooks";
import type { ConsoleBoot } from "../api";
import { follow } from "../client";
import type { ApiError } from "../errors";
import { Pick } from "../parts/form";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { stamp } from "../time";
import { bytes } from "../units";
import { useCall } from "../use-call";

/** Most characters of a boot that the page shows: the last ones. */
const SHOWN_MAX = 1_000_000;

/** The recorded output, by boot. */
export function ConsoleBoots({ id }: { id: string }) {
  const node = `nodes/${id}`;
  const { data, error, reload } = useCall("ConsoleService/ListConsoleBoots", { node });
  const [boot, setBoot] = useState(0);
  const boots = [...(data?.boots ?? [])].reverse();
  const options = boots.map((one): [string, string] => [String(one.boot ?? 0), bootText(one)]);
  return (
    <Panel
      title="Recorded boots"
      side={
        boots.length > 0 && (
          <Pick
            label="show"
            value={String(boot)}
            set={(value) => setBoot(Number(value))}
            options={[["0", "no boot"], ...options]}
          />
        )
      }
    >
      <Problem error={error} doing="list the recorded boots" retry={reload} />
      {data === undefined && error === null && <Loading what="the recorded boots" />}
      {data !== undefined && boots.length === 0 && (
        <Empty title="No output of this console is recorded">
          <p>The recording begins when the control plane has a connection to the console.</p>
        </Empty>
      )}
      {boots.length > 0 && boot === 0 && <p class="dim">Choose a boot to read its output.</p>}
      {boot !== 0 && <Recording key={boot} node={node} boot={boot} />}
    </Panel>
  );
}

function bootText({ boot, powerOnTime, firstOutputTime, sizeBytes }: ConsoleBoot): string {
  const begin = powerOnTime ? stamp(powerOnTime) : `before ${stamp(firstOutputTime)}`;
  return `boot ${boot}, ${begin}, ${bytes(sizeBytes ?? "0")}`;
}

function Recording({ node, boot }: { node: string; boot: number }) {
  const [shown, setShown] = useState({ text: "", isWhole: false });
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    let decoder = new TextDecoder();
    let raw = "";
    const show = (isWhole: boolean) => setShown({ text: plain(raw), isWhole });
    const reader = {
      begin: () => {
        [decoder, raw] = [new TextDecoder(), ""];
      },
      message: ({ output = "" }: { output?: string }) => {
        const bytes = Uint8Array.from(atob(output), (letter) => letter.charCodeAt(0));
        raw = (raw + decoder.decode(bytes, { stream: true })).slice(-SHOWN_MAX);
      },
      drained: () => show(false),
      failed: setError,
      ended: () => show(true),
    };
    void follow("ConsoleService/ReadConsoleLog", () => ({ node, boot }), reader, stop.signal);
    return () => stop.abort();
  }, [node, boot]);
  return (
    <>
      <Problem error={error} doing="read the recording" />
      {shown.text === "" && !shown.isWhole && error === null && <Loading what="the recording" />}
      {shown.isWhole && shown.text === "" && <p class="dim">This boot has no output.</p>}
      {shown.text.length >= SHOWN_MAX / 2 && (
        <p class="dim">
          Only the end of a long recording is shown. All of it: <code>rackwright node console log ID --boot N</code>
        </p>
      )}
      {shown.text !== "" && (
        <pre class="console-recording" tabIndex={0} aria-label={`Output of boot ${boot}`}>
          {shown.text}
        </pre>
      )}
    </>
  );
}

// Escape sequences, and control characters except tabs and ends of lines.
const CONTROLS = new RegExp(
  [
    /\x1b\[[0-?]*[ -/]*[@-~]/,
    /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/,
    /\x1b[ -/]*[0-~]/,
    /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "g",
);

/** The text without what only a terminal understands. */
function plain(raw: string): string {
  return raw.replace(CONTROLS, "").replace(/\r+\n?/g, "\n");
}
