import { useEffect, useRef, useState } from "preact/hooks";
import { attach, type Line, type Mode } from "../console/attach";
import { loadTerminal } from "../console/load";
import type { Screen } from "../console/terminal";
import { asApiError, type ApiError } from "../errors";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Problem } from "../parts/problem";
import { whyNotType } from "../roles";
import { ConsoleBoots } from "./console-boots";
import type { NodeView } from "./view";

/** The serial console of a node: live, and the recorded boots. */
export function ConsoleView({ of: { id } }: { of: NodeView }) {
  return (
    <div class="stack">
      <LiveConsole key={id} id={id} />
      <ConsoleBoots key={`boots ${id}`} id={id} />
    </div>
  );
}

function LiveConsole({ id }: { id: string }) {
  const place = useRef<HTMLDivElement>(null);
  const keyboard = useRef<((bytes: Uint8Array) => void) | null>(null);
  const { screen, error, retry } = useScreen(place, id, (bytes) => keyboard.current?.(bytes));
  const [wanted, setWanted] = useState<{ mode: Mode; round: number }>({ mode: "watch", round: 0 });
  const [line, setLine] = useState<Line>({ state: "connecting" });
  const [notice, setNotice] = useState("");
  useEffect(() => {
    if (screen === null) {
      return undefined;
    }
    const stop = new AbortController();
    const handlers = {
      line: (next: Line) => {
        setLine(next);
        if (next.state === "connecting") {
          setNotice("");
        }
        screen.setTyping(next.state === "open" && next.mode !== "watch");
      },
      output: (bytes: Uint8Array) => screen.write(bytes),
      notice: setNotice,
      keyboard: (send: ((bytes: Uint8Array) => void) | null) => {
        keyboard.current = send;
      },
    };
    void attach(`nodes/${id}`, wanted.mode, handlers, stop.signal);
    return () => stop.abort();
  }, [screen, id, wanted]);
  const begin = (mode: Mode) => setWanted(({ round }) => ({ mode, round: round + 1 }));
  return (
    <Panel title="Live console" side={<Controls line={line} begin={begin} />}>
      <Problem error={error} doing="load the terminal" retry={retry} />
      <p class="console-line" role="status">
        {screen === null && error === null ? "Loading the terminal" : lineText(line)}
        {notice !== "" && <span class="console-notice">{notice}</span>}
      </p>
      <div class="console-screen" ref={place} />
    </Panel>
  );
}

/** The terminal in `place`, after its files are loaded. */
function useScreen(place: { current: HTMLElement | null }, id: string, typed: (bytes: Uint8Array) => void) {
  const [screen, setScreen] = useState<Screen | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [round, setRound] = useState(0);
  useEffect(() => {
    let opened: Screen | null = null;
    let isGone = false;
    setError(null);
    loadTerminal().then(
      ({ openScreen }) => {
        if (!isGone && place.current !== null) {
          opened = openScreen(place.current, `Console of ${id}`, typed);
          setScreen(opened);
        }
      },
      (fault: unknown) => !isGone && setError(asApiError(fault, "terminal")),
    );
    return () => {
      isGone = true;
      opened?.close();
      setScreen(null);
    };
  }, [id, round]);
  return { screen, error, retry: () => setRound((before) => before + 1) };
}

function lineText(line: Line): string {
  switch (line.state) {
    case "connecting":
      return "Connecting";
    case "open":
      return line.mode === "watch" ? "Connected: you watch" : "Connected: you type";
    case "lost":
      return `Not connected: ${line.why}. The console connects again by itself.`;
    case "ended":
      return `Not connected: ${line.why}`;
  }
}

function Controls({ line, begin }: { line: Line; begin(mode: Mode): void }) {
  if (line.state === "ended") {
    return <Button onClick={() => begin("watch")}>Connect again</Button>;
  }
  if (line.state === "open" && line.mode !== "watch") {
    return <Button onClick={() => begin("watch")}>Only watch</Button>;
  }
  const why = whyNotType() || (line.state === "open" ? "" : "The console is not connected");
  return (
    <Button icon="terminal" why={why} onClick={() => begin("take-over")}>
      Type here
    </Button>
  );
}
