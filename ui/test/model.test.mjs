// Tables for the pure parts of the pages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** A module of the pages, for Node. */
async function load(name) {
  const built = await esbuild.build({ entryPoints: [join(root, "src", name)], bundle: true, write: false, format: "esm", platform: "neutral", mainFields: ["module", "main"] });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].contents).toString("base64")}`);
}

test("filters", async () => {
  const { compileFilter } = await load("model/filter.ts");
  const row = { text: "web-1 default 10.0.0.1", fields: { status: "Running", node: "n1" }, numbers: { cpu: 4, mem: 8 * 2 ** 30, age: 3600 } };
  const cases = {
    "": true, web: true, "web db": false, "db|web": true, "-web": false, "-db": true,
    "status:run": true, "status:stopped|running": true, "-status:running": false, "node:n2": false, "other:x": false,
    "cpu>4": false, "cpu>=4": true, "mem>4Gi": true, "mem<8Gi": false, "age<1d": true, "age>2h": false, "age>x": false, "cpu>4x": false, "-": true,
  };
  for (const [text, expected] of Object.entries(cases)) assert.equal(compileFilter(text)(row), expected, text);
});

test("quantities and ages", async () => {
  const { age, formatBytes, parseQuantity } = await load("model/quantity.ts");
  for (const [text, number] of [["1Gi", 2 ** 30], ["500m", 0.5], ["2", 2], ["1.5Ti", 1.5 * 2 ** 40], [7, 7]]) assert.equal(parseQuantity(text), number);
  for (const text of ["", "x", "1Xi", undefined, null]) assert.ok(Number.isNaN(parseQuantity(text)), String(text));
  for (const [bytes, text] of [[0, "0 B"], [1023, "1023 B"], [2 ** 30, "1 Gi"], [1.5 * 2 ** 30, "1.5 Gi"], [200.4 * 2 ** 30, "200 Gi"], [NaN, "–"], [undefined, "–"]]) assert.equal(formatBytes(bytes), text);
  const now = Date.parse("2026-01-02T00:00:00Z");
  for (const [time, text] of [["2026-01-01T23:59:30Z", "30s"], ["2026-01-01T20:00:00Z", "4h"], ["2025-12-03T00:00:00Z", "1mo"], [undefined, "–"]]) assert.equal(age(time, now), text);
});

test("the palette prefers whole words and beginnings", async () => {
  const { score } = await load("model/score.ts");
  assert.equal(score("xyz", "Start web"), 0);
  assert.ok(score("start web", "Start web") > score("start web", "Restart web"));
  assert.ok(score("web", "web-1") > score("web", "we are best"));
});

test("a draft becomes a machine", async () => {
  const { EMPTY, machineObject, missing, namesOf, userData } = await load("model/draft.ts");
  const context = { imageClasses: new Map([["default/debian", "lh-1"]]), defaultClass: "replicated", publicKeys: new Map([["default/me", "ssh-ed25519 A me"]]), templates: new Map() };
  const draft = { ...EMPTY, name: "web", image: "default/debian", keys: ["default/me"], password: 'a"b' };
  const made = machineObject(draft, "web", context);
  const [claim] = JSON.parse(made.metadata.annotations["harvesterhci.io/volumeClaimTemplates"]);
  assert.equal(claim.spec.storageClassName, "lh-1");
  assert.deepEqual(made.spec.template.spec.volumes.map((one) => one.name), ["disk", "cloud-init"]);
  assert.equal(made.spec.template.spec.domain.memory.guest, "1024Mi");
  assert.match(userData(draft, "web", context.publicKeys), /^#cloud-config\nhostname: web\npassword: "a\\"b"\n[^]*ssh_authorized_keys:\n  - "ssh-ed25519 A me"\n$/);
  assert.equal(userData(EMPTY, "web", new Map()), undefined);
  const sized = machineObject({ ...draft, size: "u1.small" }, "web", context);
  assert.equal(sized.spec.instancetype.name, "u1.small");
  assert.equal(sized.spec.template.spec.domain.cpu, undefined);
  const iso = machineObject({ ...draft, iso: true }, "web", context);
  assert.deepEqual(iso.spec.template.spec.domain.devices.disks.map((one) => [one.name, one.bootOrder]), [["disk", 2], ["iso", 1], ["cloud-init", undefined]]);
  assert.deepEqual(namesOf({ ...draft, count: 2 }), ["web-1", "web-2"]);
  for (const [change, why] of [[{}, undefined], [{ name: "Web" }, /name/], [{ image: "" }, /image/], [{ source: "url" }, /URL/], [{ source: "template" }, /template/]]) {
    const found = missing({ ...draft, ...change });
    if (why) assert.match(found, why);
    else assert.equal(found, undefined);
  }
});

test("machines are called what they are", async () => {
  const { machineStatus } = await load("model/status.ts");
  const machine = (printableStatus, conditions = [], metadata = {}) => ({ metadata, status: { printableStatus, conditions } });
  const cases = [
    [machine("Running"), "ok", "Running"],
    [machine("Stopped"), "off", "Stopped"],
    [machine("Running", [{ type: "RestartRequired", status: "True" }]), "warn", "Restart needed"],
    [machine("ErrorUnschedulable", [{ type: "PodScheduled", status: "False", message: "0/1 nodes" }]), "bad", "No host fits"],
    [machine("Starting", [], { deletionTimestamp: "x" }), "busy", "Deleting"],
    [machine("SomethingNew"), "warn", "SomethingNew"],
    [{ metadata: {} }, "busy", "Accepted"],
  ];
  for (const [object, tone, word] of cases) {
    const status = machineStatus(object, undefined);
    assert.deepEqual([status.tone, status.word], [tone, word]);
  }
});
