// The committed pages are what the sources produce.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

function files(folder) {
  const found = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(found.map((entry) => [join(entry.parentPath ?? entry.path, entry.name).slice(folder.length), readFileSync(join(entry.parentPath ?? entry.path, entry.name), "utf8")]));
}

test("a build gives the committed files", () => {
  const out = mkdtempSync(join(tmpdir(), "sheaf-dist-"));
  execFileSync("node", [join(root, "build.mjs"), "--out", out]);
  const [built, kept] = [files(out), files(join(root, "dist"))];
  rmSync(out, { recursive: true });
  assert.deepEqual([...built.keys()].sort(), [...kept.keys()].sort());
  for (const [name, text] of built) assert.ok(text === kept.get(name), name);
});
