const SCRIPT = "/terminal.js";
const STYLE = "/terminal.css";

type Terminal = typeof import("./terminal");

let loaded: Promise<Terminal> | undefined;

/** Loads the terminal's files, once. */
export function loadTerminal(): Promise<Terminal> {
  loaded ??= Promise.all([import(SCRIPT) as Promise<Terminal>, loadStyle()]).then(
    ([terminal]) => terminal,
    (error: unknown) => {
      loaded = undefined;
      throw error;
    },
  );
  return loaded;
}

function loadStyle(): Promise<void> {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = STYLE;
    link.onload = () => resolve();
    link.onerror = () => {
      link.remove();
      reject(new Error("the style sheet of the terminal cannot be loaded"));
    };
    document.head.append(link);
  });
}
