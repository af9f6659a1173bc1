// Writes ../dist. The same sources give the same bytes, so `git diff` after a build shows whether dist is up to date.
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "..", "dist");

mkdirSync(dist, { recursive: true });
const common = { absWorkingDir: here, bundle: true, minify: true, legalComments: "none", logLevel: "warning" };
const script = {
  ...common,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
};
// `app.js` begins the console, `more.js` has the pages that are loaded when they are opened, and `chunk.js` what both use.
await build({
  ...script,
  splitting: true,
  entryPoints: { app: "src/main.tsx" },
  chunkNames: "[name]",
  outdir: dist,
});
// The page of a console loads the terminal. `document` is another one there: see the injected file.
await build({
  ...script,
  legalComments: "eof",
  entryPoints: ["src/console/terminal.ts"],
  outfile: join(dist, "terminal.js"),
  inject: ["src/console/styled-document.ts"],
  define: { document: "styledDocument", "window.document": "styledDocument" },
});
const styles = { "app.css": "src/styles/app.css", "terminal.css": "src/console/terminal.css" };
for (const [name, source] of Object.entries(styles)) {
  await build({ ...common, entryPoints: [source], outfile: join(dist, name), target: "chrome111" });
}
for (const name of ["index.html", "icon.svg"]) {
  copyFileSync(join(here, "src", name), join(dist, name));
}
