/** Makes `bundle/`: what every server serves under /client/, small and in few files. */

import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const root = fileURLToPath(new URL("..", import.meta.url));
/** Somewhere else when a folder is given. */
const folder = process.argv[2] ?? `${root}bundle`;

/** Has the smaller files take from `mdserver.js` what all share: an error is told by its class. */
const shared = {
  name: "shared",
  setup(plugin) {
    plugin.onResolve({ filter: /\/(index|errors|events)\.js$/ }, () => ({
      path: "./mdserver.js",
      external: true,
    }));
  },
};

/** Leaves out what is loaded only when no WebSocket gets through, or for a shared connection. */
const onDemand = {
  name: "on demand",
  setup(plugin) {
    plugin.onResolve({ filter: /\/(streaming|tabs)\.js$/ }, ({ kind, path }) =>
      kind === "dynamic-import" ? { path, external: true } : undefined,
    );
  },
};

const common = {
  absWorkingDir: root,
  outdir: folder,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
};
await rm(folder, { recursive: true, force: true });
const whole = { mdserver: "index.js", worker: "worker.js" };
await build({ ...common, entryPoints: whole, plugins: [onDemand] });
const smaller = {
  binary: "codec/binary.js",
  compression: "compression.js",
  components: "components.js",
  streaming: "streaming.js",
  tabs: "tabs.js",
};
await build({ ...common, entryPoints: smaller, plugins: [shared] });

for (const name of await readdir(folder)) {
  const { code } = await minify(await readFile(`${folder}/${name}`, "utf8"), {
    module: true,
    ecma: 2020,
    compress: { passes: 3 },
  });
  await writeFile(`${folder}/${name}`, `${code}\n`);
}
