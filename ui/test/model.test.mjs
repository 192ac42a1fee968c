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

test("series are added up by time, and lines break where nothing was measured", async () => {
  const { addSeries, ceiling, latest, linePath } = await load("model/series.ts");
  const columns = ["cpu"];
  const sum = addSeries([{ start: 100, step: 10, columns, values: [[1, 2, null]] }, { start: 110, step: 10, columns, values: [[10, null, 30]] }]);
  assert.deepEqual(sum, { start: 100, step: 10, columns, values: [[1, 12, null, 30]] });
  assert.deepEqual(addSeries([]).values, []);
  assert.equal(linePath([0, null, 5, 10], 10, 30, 100), "M0.0 100.0M20.0 50.0L30.0 0.0");
  assert.equal(latest([1, 2, null]), 2);
  for (const [greatest, round] of [[0, 1], [0.3, 0.5], [1, 1], [1.1, 2], [3200, 5000]]) assert.equal(ceiling(greatest), round);
});

test("hosts and their maintenance are called what they are", async () => {
  const { diskRows, hostStatus } = await load("model/host.ts");
  const host = (annotations, conditions = [], spec = {}) => ({ metadata: { name: "n", annotations }, spec, status: { conditions: [{ type: "Ready", status: "True" }, ...conditions] } });
  const drain = (reason) => [{ type: "MaintenanceMode", status: "True", reason, message: "m" }];
  const cases = [
    [host({}), "ok", "Ready"],
    [host({}, [], { unschedulable: true }), "warn", "Cordoned"],
    [host({ "harvesterhci.io/drain-requested": "true" }, drain("Draining")), "busy", "Machines are leaving"],
    [host({ "harvesterhci.io/maintain-status": "running" }, drain("Blocked")), "bad", "Maintenance blocked"],
    [host({ "harvesterhci.io/maintain-status": "completed" }), "warn", "In maintenance"],
    [{ metadata: { name: "n" }, status: { conditions: [] } }, "bad", "Not ready"],
  ];
  for (const [object, tone, word] of cases) {
    const status = hostStatus(object);
    assert.deepEqual([status.tone, status.word], [tone, word]);
  }
  const disk = { conditions: [{ type: "Ready", status: "True" }, { type: "Schedulable", status: "False", message: "full" }], storageMaximum: 10, storageAvailable: 4, scheduledReplica: { a: 1, b: 2 } };
  const [row] = diskRows({ metadata: { name: "n" }, spec: { disks: { d: { path: "/d", allowScheduling: true } } }, status: { diskStatus: { d: disk } } });
  assert.deepEqual([row.used, row.size, row.replicas, row.status.word], [6, 10, 2, "Full"]);
});

test("tasks are ordered by what needs somebody", async () => {
  const { cloneTask, dataVolumeTask, hostTask, migrationTask, orderTasks, restoreTask } = await load("model/task.ts");
  const object = (name, rest) => ({ metadata: { name, namespace: "ns", creationTimestamp: `2026-01-0${name}T00:00:00Z` }, ...rest });
  const tasks = orderTasks([
    cloneTask(object("1", { status: { phase: "Succeeded", targetName: "copy" } })),
    restoreTask(object("2", { spec: { target: { name: "vm" } }, status: { conditions: [{ type: "Failure", status: "True", message: "no" }] } })),
    dataVolumeTask(object("3", { status: { phase: "ImportInProgress", progress: "25.0%" } })),
    migrationTask(object("4", { spec: { vmiName: "vm" }, status: { phase: "Running" } })),
  ]);
  assert.deepEqual(tasks.map((one) => [one.verb, one.name, one.fields.state]), [["Migrate", "vm", "running"], ["Fill volume", "3", "running"], ["Restore", "vm", "failed"], ["Clone", "copy", "done"]]);
  assert.equal(tasks[1].progress, 0.25);
  assert.ok(tasks[0].migration && !tasks[1].migration, "only migrations can be cancelled");
  assert.equal(hostTask({ metadata: { name: "n" }, status: {} }), undefined);
});

test("a quota goes through its form unchanged", async () => {
  const { fieldsOf, hardOf, membersOf, quotaLines } = await load("model/project.ts");
  const hard = { "limits.cpu": "4", "limits.memory": "8Gi", "requests.storage": "100Gi", "count/virtualmachines.kubevirt.io": "3" };
  const quota = { metadata: { name: "project" }, spec: { hard }, status: { used: { "limits.cpu": "500m", "limits.memory": "1Gi" } } };
  assert.deepEqual(hardOf(fieldsOf(quota)), hard);
  assert.deepEqual(hardOf(fieldsOf(undefined)), {});
  assert.deepEqual(quotaLines([quota]).map((line) => line.text), ["0.5 / 4", "1 Gi / 8 Gi", "0 B / 100 Gi", "0 / 3"]);
  const binding = { metadata: { name: "b" }, roleRef: { name: "edit" }, subjects: [{ kind: "User", name: "z" }, { kind: "ServiceAccount", name: "robot" }, { kind: "Group", name: "a" }] };
  assert.deepEqual(membersOf([binding]).map((one) => [one.kind, one.name, one.role]), [["Group", "a", "edit"], ["User", "z", "edit"]]);
});

test("a migration goes to its own target, not to that of the one before", async () => {
  const { newestMigration, targetOf } = await load("model/migration.ts");
  const migration = (uid, spec = {}, status = {}) => ({ metadata: { name: uid, uid, creationTimestamp: `2026-01-0${uid}T00:00:00Z` }, spec: { vmiName: "vm", ...spec }, status });
  const instance = { metadata: { name: "vm" }, status: { migrationState: { migrationUid: "1", targetNode: "n1" } } };
  const cases = [
    [migration("1"), "n1"],
    [migration("2"), ""],
    [migration("2", { addedNodeSelector: { "kubernetes.io/hostname": "n3" } }), "n3"],
    [migration("2", {}, { migrationState: { targetNode: "n2" } }), "n2"],
  ];
  for (const [one, target] of cases) assert.equal(targetOf(one, instance), target);
  assert.equal(newestMigration([migration("1"), migration("2"), { ...migration("3"), spec: { vmiName: "other" } }], "vm").metadata.name, "2");
});

test("backups tell how far they are, and schedules whether they run", async () => {
  const { backupStatus, progressOf, scheduleStatus, sizeOf } = await load("model/backup.ts");
  const backup = (status) => ({ metadata: { name: "b" }, spec: {}, status });
  for (const [status, word, progress] of [[undefined, "In progress", 0], [{ progress: 40 }, "In progress", 40], [{ readyToUse: true, progress: 100 }, "Ready", undefined], [{ error: { message: "no" } }, "Failed", undefined]]) {
    assert.deepEqual([backupStatus(backup(status)).word, progressOf(backup(status))], [word, progress]);
  }
  assert.equal(sizeOf(backup({ volumeBackups: [{ volumeSize: 3 }, {}, { volumeSize: 4 }] })), 7);
  const schedule = (suspend, status) => ({ metadata: { name: "s" }, spec: { suspend }, status });
  const conditions = [{ type: "BackupSuspend", status: "True", message: "failure backups 4 reach max tolerance 4" }];
  for (const [one, tone, word] of [
    [schedule(false, {}), "ok", "Active"], [schedule(false, { failure: 1 }), "warn", "Failing"], [schedule(true, { failure: 0 }), "off", "Suspended"],
    [schedule(true, { failure: 4, conditions }), "bad", "Suspended"], [schedule(false, { suspended: true }), "busy", "Resuming"],
  ]) assert.deepEqual([scheduleStatus(one).tone, scheduleStatus(one).word], [tone, word]);
});

test("a backup target is read, checked and written", async () => {
  const { NO_TARGET, targetMissing, targetOf, targetStatus, targetValue } = await load("model/backup.ts");
  const s3 = { ...NO_TARGET, type: "s3", bucketName: "b", bucketRegion: "r", accessKeyId: "a", secretAccessKey: "s" };
  assert.deepEqual(targetOf(targetValue(s3)), s3);
  assert.deepEqual([targetOf(""), targetOf("no json"), targetOf(targetValue(NO_TARGET))], [NO_TARGET, NO_TARGET, NO_TARGET]);
  assert.equal(targetValue({ ...s3, type: "nfs", endpoint: "nfs://a:/b" }), '{"type":"nfs","endpoint":"nfs://a:/b"}');
  for (const [target, why] of [[s3, undefined], [NO_TARGET, undefined], [{ ...s3, bucketName: "" }, /bucket/], [{ ...s3, secretAccessKey: "" }, /keys/], [{ ...NO_TARGET, type: "nfs", endpoint: "a:/b" }, /nfs:/]]) {
    if (why) assert.match(targetMissing(target), why);
    else assert.equal(targetMissing(target), undefined);
  }
  const setting = (conditions) => ({ metadata: { name: "backup-target" }, value: targetValue(s3), status: { conditions } });
  for (const [conditions, word] of [[[], "Connecting"], [[{ type: "configured", status: "True" }], "Reached"], [[{ type: "configured", status: "False", message: "no" }], "Not reached"]]) assert.equal(targetStatus(setting(conditions)).word, word);
});

test("the loss of a host is told for each machine and volume", async () => {
  const { lossSummary, machineFate, volumeFate } = await load("model/loss.ts");
  const machine = (fate, more) => ({ namespace: "default", name: "web", fate, ...more });
  assert.deepEqual(machineFate(machine("restarted", { node: "n3" })), { tone: "ok", word: "starts on n3" });
  assert.deepEqual(machineFate(machine("waiting", { message: "0/2 nodes" })), { tone: "warn", word: "waits for room", reason: "0/2 nodes" });
  assert.equal(machineFate(machine("down", { message: "disk" })).tone, "bad");
  const volume = (copiesLeft) => ({ name: "pvc-1", claim: "default/root", copiesLeft, copiesWanted: 3 });
  assert.equal(volumeFate(volume(0)).word, "unavailable");
  assert.equal(volumeFate(volume(2)).reason, "2 of 3 copies are left");
  const loss = { node: "n2", machines: [machine("restarted", { node: "n3" }), machine("down", { message: "" })], volumes: [volume(0), volume(1)] };
  assert.equal(lossSummary(loss), "1 machine would start elsewhere · 1 machine would stay down · 1 volume would be unavailable");
});

test("alarms that need somebody come first by severity and age", async () => {
  const { alarmStatus, isSettled, objectPath, openAlarms } = await load("model/alarm.ts");
  const now = Date.parse("2026-01-02T04:00:00Z");
  const alarm = (name, severity, since, spec = {}, object = { kind: "Node", name: "n1" }) => ({ metadata: { name }, spec, status: { severity, since, summary: name, object } });
  const all = [
    alarm("new", "critical", "2026-01-02T03:59:00Z"),
    alarm("warn", "warning", "2026-01-01T00:00:00Z"),
    alarm("old", "critical", "2026-01-02T03:00:00Z"),
    alarm("known", "critical", "2026-01-02T03:00:00Z", { acknowledged: true }),
    alarm("quiet", "critical", "2026-01-02T03:00:00Z", { silencedUntil: "2026-01-02T05:00:00Z" }),
  ];
  assert.deepEqual(openAlarms(all, now).map((one) => one.metadata.name), ["old", "new", "warn"]);
  assert.equal(isSettled(alarm("over", "critical", "", { silencedUntil: "2026-01-02T03:30:00Z" }), now), false);
  assert.deepEqual([alarmStatus(all[0]).tone, alarmStatus(all[1]).tone], ["bad", "warn"]);
  assert.equal(objectPath(all[0]), "/hosts/n1");
  assert.equal(objectPath(alarm("m", "critical", "", {}, { kind: "VirtualMachine", namespace: "a", name: "b" })), "/machines/a/b");
  assert.equal(objectPath(alarm("x", "critical", "", {}, { kind: "Other", name: "b" })), null);
});
