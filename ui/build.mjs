// Builds the pages into dist/: node build.mjs [--watch] [--out DIR]
//
// Names carry a hash of the content, so that browsers may keep files for ever. The output is
// the same on every machine: dist/ is committed, and a test compares.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { licences } from "./scripts/licences.mjs";

const root = dirname(fileURLToPath(import.meta.url));
const argument = (name) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};
const out = argument("--out") ?? join(root, "dist");

/**
 * What is loaded later imports the application as well, which is there by then. So everything that the application
 * needs at its start belongs to the same files, and goes into one chunk instead of one for each combination of screens.
 */
const oneChunkForTheStart = {
  name: "one-chunk-for-the-start",
  setup(build) {
    const application = join(root, "src/app.tsx");
    build.onResolve({ filter: /^\.{1,2}\// }, ({ kind, path, resolveDir }) =>
      kind === "dynamic-import" && resolveDir.startsWith(join(root, "src")) ? { path: join(resolveDir, path), pluginData: { late: true } } : undefined,
    );
    build.onLoad({ filter: /\.tsx?$/ }, ({ path, pluginData }) => {
      if (!pluginData?.late || path === application) return undefined;
      const contents = `${readFileSync(path, "utf8")}\nimport ${JSON.stringify(application)};\n`;
      return { contents, loader: path.endsWith("x") ? "tsx" : "ts", watchFiles: [path] };
    });
  },
};

const options = {
  absWorkingDir: root,
  entryPoints: { main: "src/main.tsx", theme: "src/theme.ts" },
  outdir: join(out, "a"),
  publicPath: "/dashboard/a",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome110", "firefox115", "safari16.4"],
  minify: true,
  metafile: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  loader: { ".svg": "file" },
  plugins: [oneChunkForTheStart],
  logLevel: "warning",
};

/** The page that loads the rest, from the names that this build gave. */
function page(metafile) {
  const outputs = Object.entries(metafile.outputs);
  const of = (entry) => outputs.find(([, output]) => output.entryPoint === entry);
  const url = (file) => `/dashboard/a/${basename(file)}`;
  const [main, mainOutput] = of("src/main.tsx");
  const [theme] = of("src/theme.ts");
  const preload = mainOutput.imports
    .filter((one) => one.kind === "import-statement")
    .map((one) => `<link rel="modulepreload" href="${url(one.path)}">`);
  const icon = outputs.find(([file]) => /icon-[A-Z0-9]+\.svg$/.test(file))[0];
  return readFileSync(join(root, "src/index.html"), "utf8")
    .replace("%ICON%", url(icon))
    .replace("%STYLE%", url(mainOutput.cssBundle))
    .replace("%THEME%", url(theme))
    .replace("%PRELOAD%", preload.sort().join(""))
    .replace("%MAIN%", url(main));
}

/** A sum over everything that the output depends on; crates/control-plane/ui checks it. */
export function sourceSum() {
  const files = ["build.mjs", "package-lock.json", "scripts/licences.mjs"];
  const walk = (folder) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) walk(path);
      else files.push(path);
    }
  };
  walk("src");
  const sum = createHash("sha256");
  for (const file of files.sort()) sum.update(`${file}\0`).update(readFileSync(join(root, file))).update("\0");
  return sum.digest("hex");
}

function finish(result) {
  writeFileSync(join(out, "index.html"), page(result.metafile));
  writeFileSync(join(out, "licences.txt"), licences(root, result.metafile));
  writeFileSync(join(out, "sources.sha256"), `${sourceSum()}\n`);
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
if (process.argv.includes("--watch")) {
  const plugin = { name: "page", setup: (build) => build.onEnd((result) => result.errors.length || finish(result)) };
  const context = await esbuild.context({ ...options, minify: false, sourcemap: "inline", plugins: [...options.plugins, plugin] });
  await context.watch();
  console.log(`watching; pages are in ${relative(process.cwd(), out)}`);
} else {
  const result = await esbuild.build(options);
  finish(result);
  if (process.argv.includes("--sizes")) {
    for (const [file, output] of Object.entries(result.metafile.outputs))
      console.log(String(output.bytes).padStart(8), file);
  }
}
