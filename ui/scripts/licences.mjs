// The licences of the packages whose code is in the bundle. Fails for one that is not allowed.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** As deny.toml, and MPL-2.0 for noVNC: its files are unchanged, and named with their source. */
const ALLOWED = new Set(["MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0"]);

export function licences(root, metafile) {
  const names = new Set();
  for (const file of Object.keys(metafile.inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
    if (found) names.add(found[1]);
  }
  const parts = ["Software by others in Sheaf's dashboard, unmodified.\n"];
  for (const name of [...names].sort()) {
    const folder = join(root, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    if (!ALLOWED.has(about.license)) throw new Error(`${name} has the licence ${about.license}, which is not allowed`);
    const source = typeof about.repository === "string" ? about.repository : about.repository?.url;
    const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.|$)/i.test(entry));
    const text = file && existsSync(join(folder, file)) ? readFileSync(join(folder, file), "utf8").trim() : "";
    parts.push(`${"=".repeat(72)}\n${name} ${about.version}: ${about.license}\n${source ?? ""}\n\n${text}\n`);
  }
  return parts.join("\n");
}
