// Writes ../dist. The same sources give the same bytes, so `git diff` after a build shows whether dist is up to date.
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "..", "dist");

mkdirSync(dist, { recursive: true });
const common = { absWorkingDir: here, bundle: true, minify: true, legalComments: "none", logLevel: "warning" };
await build({
  ...common,
  entryPoints: ["src/main.tsx"],
  outfile: join(dist, "app.js"),
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
});
await build({ ...common, entryPoints: ["src/styles/app.css"], outfile: join(dist, "app.css"), target: "chrome111" });
for (const name of ["index.html", "icon.svg"]) {
  copyFileSync(join(here, "src", name), join(dist, name));
}
