// The terminal, in a file of its own: only the page of a console loads it.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { styledDocument } from "./styled-document";

const SCROLLBACK = 10_000;

export interface Screen {
  write(bytes: Uint8Array): void;
  setTyping(isTyping: boolean): void;
  close(): void;
}

/** Shows a terminal in `place`; `typed` gets the keyboard's bytes. */
export function openScreen(place: HTMLElement, label: string, typed: (bytes: Uint8Array) => void): Screen {
  const style = getComputedStyle(place);
  const terminal = new Terminal({
    documentOverride: styledDocument,
    disableStdin: true,
    cursorBlink: false,
    scrollback: SCROLLBACK,
    fontFamily: style.fontFamily,
    fontSize: 13,
    // The machine's output has its own colours, made for a dark screen.
    theme: { background: "#0b1013", foreground: "#e3eaf0", cursor: "#e6b450" },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  terminal.textarea?.setAttribute("aria-label", label);
  const encoder = new TextEncoder();
  terminal.onData((text) => typed(encoder.encode(text)));
  terminal.onBinary((text) => typed(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  const resized = new ResizeObserver(() => fit.fit());
  resized.observe(place);
  return {
    write: (bytes) => terminal.write(bytes),
    setTyping: (isTyping) => {
      terminal.options.disableStdin = !isTyping;
      terminal.options.cursorBlink = isTyping;
      if (isTyping) {
        terminal.focus();
      }
    },
    close: () => {
      resized.disconnect();
      terminal.dispose();
    },
  };
}
