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

test("rows are sorted with numbers as numbers, and an order is used again", async () => {
  const { sorted } = await load("model/order.ts");
  let asked = 0;
  const columns = [{ id: "icon" }, { id: "name", sort: (row) => ((asked += 1), row.name) }, { id: "size", sort: (row) => row.size }];
  const rows = [{ name: "web-10", size: 1 }, { name: "Web-2", size: 3 }, { name: "db", size: 2 }];
  const names = (found) => found.map((row) => row.name);
  const last = { current: null };
  assert.deepEqual(names(sorted(rows, columns, null, last)), ["db", "Web-2", "web-10"]);
  const { order } = last.current;
  const changed = [rows[0], { ...rows[1] }, rows[2]];
  const again = sorted(changed, columns, null, last);
  assert.ok(again[1] === changed[1] && last.current.order === order, "the order is the same, the row is the new one");
  assert.equal(asked, 4, "only the new row was asked");
  changed[1] = { name: "a", size: 3 };
  assert.deepEqual(names(sorted(changed, columns, null, last)), ["a", "db", "web-10"]);
  assert.deepEqual(names(sorted([rows[0]], columns, null, last)), ["web-10"]);
  assert.deepEqual(names(sorted(rows, columns, "-size", last)), ["Web-2", "db", "web-10"]);
  assert.deepEqual(names(sorted(rows, columns, "icon", last)), ["db", "Web-2", "web-10"]);
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

test("networks are read from their configuration, and created as the server expects them", async () => {
  const { clusterNetworkNames, networkCommand, networkFacts, networkMissing, networkObject, trunkOf } = await load("model/network.ts");
  const network = (config, clusterNetwork) => ({ metadata: { name: "office", labels: clusterNetwork ? { "network.harvesterhci.io/clusternetwork": clusterNetwork } : {} }, spec: { config } });
  const cases = [
    [network('{"bridge":"lan-br","vlan":100}', "lan"), "vlan", "100"],
    [network('{"bridge":"lan-br","vlanTrunk":[{"minID":100,"maxID":110},{"id":5}]}', "lan"), "trunk", "100-110, 5"],
    [network('{"bridge":"lan-br","vlan":0}', "lan"), "untagged", ""],
    [network('{"bridge":"br1"}'), "bridge", ""],
    [network("{"), "invalid", ""],
    [network("7"), "invalid", ""],
  ];
  for (const [one, type, vlans] of cases) assert.deepEqual([networkFacts(one).type, networkFacts(one).vlans], [type, vlans]);
  for (const [text, ranges] of [["5", [{ id: 5 }]], ["100-110, 5", [{ minID: 100, maxID: 110 }, { id: 5 }]], ["", undefined], ["0", undefined], ["4095", undefined], ["9-5", undefined], ["1-2-3", undefined], ["a", undefined]]) assert.deepEqual(trunkOf(text), ranges, text);
  const draft = { name: "office", namespace: "default", type: "vlan", clusterNetwork: "lan", vlan: "100", trunk: "", bridge: "" };
  assert.deepEqual(JSON.parse(networkObject(draft).spec.config), { cniVersion: "0.3.1", name: "office", type: "bridge", bridge: "lan-br", promiscMode: true, ipam: {}, vlan: 100 });
  assert.equal(networkCommand(draft), "sheaf network create office -n default --cluster-network lan --vlan 100");
  assert.equal(networkCommand({ ...draft, type: "trunk", trunk: "100-110, 5" }), "sheaf network create office -n default --cluster-network lan --trunk 100-110,5");
  for (const [change, why] of [[{}, undefined], [{ name: "" }, /name/], [{ vlan: "5000" }, /4094/], [{ clusterNetwork: "" }, /cluster network/], [{ type: "trunk", trunk: "x" }, /ranges/], [{ type: "untagged", vlan: "" }, undefined], [{ type: "bridge" }, /bridge/]]) {
    if (why) assert.match(networkMissing({ ...draft, ...change }), why);
    else assert.equal(networkMissing({ ...draft, ...change }), undefined);
  }
  const named = (name, spec) => ({ metadata: { name }, spec });
  assert.deepEqual(clusterNetworkNames([named("mgmt"), named("lan"), named("unused")], [named("u", { clusterNetwork: "lan" })]), ["lan", "mgmt"]);
});

test("an uplink says which host has not applied it", async () => {
  const { uplinkMissing, uplinkObject, uplinkStatus } = await load("model/network.ts");
  const uplink = { metadata: { name: "lan-a" } };
  const report = (node, status, message) => ({ metadata: { name: node }, status: { vlanConfig: "lan-a", node, conditions: [{ type: "ready", status, message }] } });
  assert.equal(uplinkStatus(uplink, []).tone, "busy");
  assert.equal(uplinkStatus(uplink, [report("n1", "True")]).word, "Ready");
  assert.equal(uplinkStatus(uplink, [report("n1", "True"), report("n2", "False", "Link not found")]).reason, "n2: Link not found");
  const draft = { clusterNetwork: "lan", name: "lan-a", nics: "enp3s0, enp4s0", mode: "802.3ad", mtu: "9000", host: "n1" };
  assert.deepEqual(uplinkObject(draft).spec, { clusterNetwork: "lan", nodeSelector: { "kubernetes.io/hostname": "n1" }, uplink: { nics: ["enp3s0", "enp4s0"], bondOptions: { mode: "802.3ad", miimon: 100 }, linkAttributes: { mtu: 9000 } } });
  for (const [change, why] of [[{}, undefined], [{ clusterNetwork: "a-name-too-long" }, /12/], [{ nics: " ," }, /card/], [{ mtu: "70" }, /MTU/]]) {
    if (why) assert.match(uplinkMissing({ ...draft, ...change }), why);
    else assert.equal(uplinkMissing({ ...draft, ...change }), undefined);
  }
});

test("address pools and load balancers are created from their forms", async () => {
  const { leasesOf, poolMissing, poolObject, poolStatus } = await load("model/network.ts");
  const draft = { name: "office", network: "default/office", cidr: "192.168.100.0/24", router: "192.168.100.1", start: "", end: "", dns: "192.168.100.1" };
  assert.deepEqual(poolObject(draft).spec, { networkName: "default/office", ipv4Config: { cidr: "192.168.100.0/24", router: "192.168.100.1", dns: ["192.168.100.1"], pool: {} } });
  assert.equal(poolObject(draft).metadata.namespace, "default");
  for (const [change, why] of [[{}, undefined], [{ cidr: "192.168.100.0" }, /subnet/], [{ cidr: "300.1.1.0/24" }, /subnet/], [{ start: "x" }, /Addresses/], [{ dns: "a.example" }, /Name servers/], [{ network: "" }, /network/]]) {
    if (why) assert.match(poolMissing({ ...draft, ...change }), why);
    else assert.equal(poolMissing({ ...draft, ...change }), undefined);
  }
  const pool = (status, spec = {}) => ({ metadata: { name: "p" }, spec, status });
  assert.deepEqual(leasesOf(pool({ ipv4: { allocated: { "10.0.0.10": "b", "10.0.0.9": "a" } } })).map((one) => one.address), ["10.0.0.9", "10.0.0.10"]);
  for (const [one, word] of [[pool(undefined), "Preparing"], [pool({ ipv4: { available: 0 } }), "Full"], [pool({ ipv4: { available: 1 } }), "Ready"], [pool({}, { paused: true }), "Paused"], [pool({ conditions: [{ type: "AgentReady", status: "False", message: "no" }] }), "Not ready"]]) assert.equal(poolStatus(one).word, word);

  const { balancerMissing, balancerObject, balancerStatus, portsText } = await load("model/balancer.ts");
  const form = { name: "web", namespace: "default", pool: "", protocol: "TCP", port: "80", backendPort: "8080", label: "app=web", check: true };
  const made = balancerObject(form);
  assert.deepEqual(made.spec.backendServerSelector, { app: ["web"] });
  assert.equal(made.spec.healthCheck.port, 8080);
  assert.equal(balancerObject({ ...form, protocol: "UDP" }).spec.healthCheck, undefined);
  assert.equal(portsText(made), "80 → 8080/TCP");
  for (const [change, why] of [[{}, undefined], [{ label: "web" }, /label/i], [{ port: "70000" }, /port/], [{ name: "" }, /name/]]) {
    if (why) assert.match(balancerMissing({ ...form, ...change }), why);
    else assert.equal(balancerMissing({ ...form, ...change }), undefined);
  }
  assert.equal(balancerStatus({ metadata: {}, status: { conditions: [{ type: "Ready", status: "False", message: "no pool" }] } }).reason, "no pool");
});

test("a role goes through its form unchanged", async () => {
  const { accessReview, isForPeople, otherRules, permissionsOf, roleObject, rulesOf, ruleText } = await load("model/role.ts");
  const own = { apiGroups: ["example.com"], resources: ["things"], verbs: ["get"] };
  const role = { metadata: { name: "helpdesk" }, rules: rulesOf(["see", "power"], [own]) };
  assert.deepEqual(permissionsOf(role), ["see", "power"]);
  assert.deepEqual(otherRules(role), [own]);
  assert.deepEqual(rulesOf(permissionsOf(role), otherRules(role)), role.rules);
  assert.equal(roleObject("x", []).metadata.labels["sheaf.io/project-role"], "true");
  for (const [name, expected] of [["helpdesk", true], ["view", true], ["edit", true], ["system:node", false], ["kubevirt.io:admin", false]]) assert.equal(isForPeople({ metadata: { name } }), expected, name);
  const labels = { "rbac.authorization.k8s.io/aggregate-to-view": "true" };
  assert.deepEqual([isForPeople({ metadata: { name: "part", labels } }), isForPeople({ metadata: { name: "view", labels } })], [false, true]);
  for (const [rule, text] of [
    [own, "get: things (example.com)"], [{ apiGroups: [""], resources: ["secrets"], resourceNames: ["a"], verbs: ["get", "list"] }, "get, list: secrets a"],
    [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }, "everything: all resources (all groups)"], [{ nonResourceURLs: ["/metrics"], verbs: ["get"] }, "get: /metrics"],
  ]) assert.equal(ruleText(rule), text);
  const review = accessReview({ user: "joe", groups: "a, b", verb: "update", group: "subresources.kubevirt.io", resource: "virtualmachines/start", namespace: "" });
  assert.deepEqual(review.spec, { user: "joe", groups: ["system:authenticated", "a", "b"], resourceAttributes: { verb: "update", group: "subresources.kubevirt.io", resource: "virtualmachines", subresource: "start" } });
});

test("an add-on that is not available says why", async () => {
  const { addonNote, addonStatus } = await load("model/addon.ts");
  const addon = (enabled, status, conditions = []) => ({ metadata: { name: "a" }, spec: { enabled }, status: { status, conditions } });
  const failed = [{ type: "OperationFailed", status: "True", message: "not available" }];
  for (const [one, word] of [[addon(false, "AddonDisabled"), "Disabled"], [addon(true, "AddonDeploySuccessful"), "Enabled"], [addon(true, "AddonEnabling", failed), "Not available"], [addon(true, undefined), "Enabling"]]) assert.equal(addonStatus(one).word, word);
  assert.equal(addonNote(addon(true, "AddonEnabling", failed)), "not available");
  assert.equal(addonNote(addon(false, "AddonDisabled", [{ type: "Completed", status: "True", message: "built in" }])), "built in");
});

test("snapshots hang below the state that they were taken of", async () => {
  const { snapshotTree } = await load("model/snapshotTree.ts");
  const at = (hour) => `2026-01-01T0${hour}:00:00Z`;
  const snapshot = (name, hour, source = "web") => ({ metadata: { name, creationTimestamp: at(hour) }, spec: { source: { name: source } } });
  const restore = (of, hour, target = "web", complete = true) => ({ metadata: { name: `r${hour}`, creationTimestamp: at(hour) }, spec: { target: { name: target }, virtualMachineSnapshotName: of }, status: { complete, restoreTime: at(hour) } });
  const tree = (snapshots, restores) => snapshotTree(snapshots, restores, "web").map((row) => `${" ".repeat(row.depth)}${row.snapshot.metadata.name}${row.isCurrent ? "*" : ""}`);
  const [a, b, c, d] = [snapshot("a", 1), snapshot("b", 2), snapshot("c", 4), snapshot("d", 6)];
  const cases = [
    [[b, a, snapshot("other", 1, "db")], [], ["a", "b*"]],
    [[a, b], [restore("a", 3)], ["a*", "b"]],
    [[a, b, c], [restore("a", 3)], ["a", " b", "c*"]],
    [[a, b, c, d], [restore("a", 3), restore("b", 5)], ["a", " c", "b", "d*"]],
    [[a, b], [restore("a", 3, "copy"), restore("a", 3, "web", false)], ["a", "b*"]],
    [[a, c], [restore("deleted", 3)], [" a", "c*"]],
    [[], [restore("a", 1)], []],
  ];
  for (const [snapshots, restores, expected] of cases) assert.deepEqual(tree(snapshots, restores), expected);
});

const SCHEMAS = {
  "io.x.Thing": {
    "x-kubernetes-group-version-kind": [{ group: "x.io", version: "v1", kind: "Thing" }], type: "object", required: ["spec"],
    properties: {
      apiVersion: { type: "string" }, kind: { type: "string" }, status: { type: "object", properties: {} },
      metadata: { allOf: [{ $ref: "#/components/schemas/io.x.Meta" }], description: "Standard metadata." },
      spec: { $ref: "#/components/schemas/io.x.Spec" },
    },
  },
  "io.x.Meta": { type: "object", description: "Meta.", properties: { name: { type: "string" }, labels: { type: "object", additionalProperties: { type: "string" } } } },
  "io.x.Spec": {
    type: "object", required: ["mode"],
    properties: {
      mode: { type: "string", enum: ["fast", "slow", ""], description: "How fast." }, on: { type: "boolean" }, count: { type: "integer" },
      size: { "x-kubernetes-int-or-string": true, anyOf: [{ type: "integer" }, { type: "string" }] },
      any: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      modes: { type: "array", items: { type: "string", enum: ["rw", "ro"] } },
      disks: { type: "array", items: { type: "object", required: ["name"], properties: { name: { type: "string" }, disk: { type: "object", properties: { bus: { type: "string" } } } } } },
      data: { type: "string" },
    },
  },
};

test("a schema describes the fields of a kind", async () => {
  const { fieldOf, fieldsOf, rootOf, schemaAt, valuesOf } = await load("model/schema.ts");
  const root = rootOf(SCHEMAS, "x.io", "v1", "Thing");
  assert.equal(rootOf(SCHEMAS, "x.io", "v2", "Thing"), undefined);
  assert.deepEqual(fieldsOf(root, SCHEMAS).map((one) => one.name), ["spec", "apiVersion", "kind", "metadata", "status"]);
  const spec = schemaAt(root, ["spec"], SCHEMAS);
  const types = Object.fromEntries(fieldsOf(spec, SCHEMAS).map((one) => [one.name, one.type]));
  assert.deepEqual(types, { mode: "string", any: "object", count: "integer", data: "string", disks: "[]object", modes: "[]string", on: "boolean", size: "integer or string" });
  assert.equal(fieldOf(root, "metadata", SCHEMAS).description, "Standard metadata.", "what stands beside a reference wins");
  assert.equal(fieldOf(schemaAt(root, ["metadata"], SCHEMAS), "labels", SCHEMAS).type, "map[string]string");
  for (const [path, values] of [[["spec", "mode"], ["fast", "slow"]], [["spec", "on"], ["true", "false"]], [["spec", "modes", null], ["rw", "ro"]], [["spec", "count"], []]]) {
    assert.deepEqual(valuesOf(schemaAt(root, path, SCHEMAS), SCHEMAS), values, String(path));
  }
  for (const [path, known] of [[["spec", "no"], false], [["spec", "any", "x", "y"], true], [["metadata", "labels", "x"], true], [["spec", "disks", null, "disk", "bus"], true], [["spec", "disks", null, "no"], false]]) {
    assert.equal(schemaAt(root, path, SCHEMAS) !== undefined, known, String(path));
  }
});

test("the place in a YAML document is known while it is typed", async () => {
  const { cursorAt, indentAfter, keyAt } = await load("model/cursor.ts");
  for (const [line, column] of [["spec:", 2], ["  - disk:", 6], ["  - name: a", 4], ["    bus: x # y", 4], ["a: |", 2], ["  - text", 4], ["   ", 3], ["", 0], ["  # note", 2]]) assert.equal(indentAfter(line), column, line);
  const at = (marked) => {
    const before = marked.slice(0, marked.indexOf("^"));
    const found = cursorAt(marked.replace("^", ""), before.split("\n").length - 1, before.length - before.lastIndexOf("\n") - 1);
    return found && `${found.kind} ${found.path.map((one) => one ?? "[]").join(".")} '${found.typed}' ${found.siblings.sort()}`;
  };
  const cases = [
    ["sp^", "key  'sp' "],
    ["spec:\n  mo^\n  on: true\nkind: x", "key spec 'mo' on"],
    ["spec:\n  mode: fa^", "value spec.mode 'fa' "],
    ["spec:\n  mode: ^", "value spec.mode '' "],
    ["spec:\n  disks:\n    - name: a\n      di^\n    - name: b", "key spec.disks.[] 'di' name"],
    ["spec:\n  disks:\n    - name: a\n    - na^\n      disk:\n        bus: x", "key spec.disks.[] 'na' disk"],
    ["spec:\n  disks:\n  - name: a\n    disk:\n      bu^", "key spec.disks.[].disk 'bu' "],
    ["spec:\n  disks:\n  - disk:\n      bus: a\n  mo^", "key spec 'mo' disks"],
    ["spec:\n  modes:\n    - r^", "key spec.modes.[] 'r' "],
    ["a:\n  # note: x\n\n  'b c':\n    d^", "key a.b c 'd' "],
    ["spec:\n  data: |\n    users:\n      - na^", null],
    ["spec:\n  # mo^", null],
    ["spec:\n  data: \"a^", null],
    ["spec: &anchor\n  mo^", "key spec 'mo' "],
  ];
  for (const [marked, expected] of cases) assert.equal(at(marked), expected, marked);
  const text = "spec:\n  disks:\n    - name: a";
  assert.deepEqual(keyAt(text, 2, 7), { path: ["spec", "disks", null], name: "name", from: 6, to: 10 });
  for (const [row, column] of [[2, 2], [2, 12]]) assert.equal(keyAt(text, row, column), null);
});

test("what a schema does not allow is marked where it stands", async () => {
  const { problemsOf } = await load("model/yamlCheck.ts");
  const found = (spec) => {
    const text = `apiVersion: x.io/v1\nkind: Thing\nmetadata: {name: a, labels: {any: thing}}\nspec:\n${spec}\nstatus: {what: ever}\n`;
    return problemsOf(text, SCHEMAS["io.x.Thing"], SCHEMAS).map((one) => `${text.slice(one.from, one.to)}: ${one.message}`);
  };
  const cases = [
    ["  mode: fast", []],
    ["  mode: slowly", ["slowly: spec.mode has to be: fast, slow"]],
    ["  nonsense: 1", ["nonsense: Unknown field spec.nonsense"]],
    ["  disks: [{name: a, dik: {}}, {disk: {buss: x}}]", ["dik: Unknown field spec.disks[0].dik", "buss: Unknown field spec.disks[1].disk.buss"]],
    ["  count: many\n  on: 1", ["many: spec.count has to be: integer", "1: spec.on has to be: boolean"]],
    ["  size: 1\n  any: {x: {y: 1}}\n  data: null", []],
    ["  on: true\n  on: false", ["on: Map keys must be unique"]],
    ["  disks: text", ["text: spec.disks has to be: array"]],
  ];
  for (const [spec, expected] of cases) assert.deepEqual(found(spec), expected, spec);
});

test("only definitions can be created again after a delete", async () => {
  const { canReturn, definitionOf, secretsOf } = await load("model/undelete.ts");
  const { CLAIM, IMAGE, KEY_PAIR, MACHINE, RESOURCE_QUOTA, SECRET, SNAPSHOT, TEMPLATE_VERSION, BACKUP, NAMESPACE } = await load("api/kinds.ts");
  const owned = { metadata: { name: "a", ownerReferences: [{ kind: "X", name: "x" }] } };
  for (const kind of [KEY_PAIR, TEMPLATE_VERSION, RESOURCE_QUOTA]) assert.equal(canReturn(kind, { metadata: { name: "a" } }), true, kind.kind);
  for (const kind of [SECRET, CLAIM, IMAGE, SNAPSHOT, BACKUP, NAMESPACE]) assert.equal(canReturn(kind, { metadata: { name: "a" } }), false, kind.kind);
  assert.deepEqual([canReturn(KEY_PAIR, owned), canReturn(TEMPLATE_VERSION, owned)], [false, true]);
  const machine = (spec) => ({ metadata: { name: "web" }, spec });
  const domain = (parts) => ({ template: { spec: { domain: parts } } });
  for (const [spec, expected] of [
    [{}, true], [{ dataVolumeTemplates: [] }, true], [{ dataVolumeTemplates: [{}] }, false], [{ instancetype: { name: "u1" } }, true], [{ instancetype: { revisionName: "r" } }, false],
    [domain({ devices: { tpm: {} } }), true], [domain({ devices: { tpm: { persistent: true } } }), false], [domain({ firmware: { bootloader: { efi: { persistent: true } } } }), false],
  ]) assert.equal(canReturn(MACHINE, machine(spec)), expected, JSON.stringify(spec));
  const volumes = [{ name: "a", cloudInitNoCloud: { secretRef: { name: "user" }, networkDataSecretRef: { name: "net" } } }, { name: "b", secret: { secretName: "files" } }, { name: "c", persistentVolumeClaim: { claimName: "disk" } }];
  const accessCredentials = [{ sshPublicKey: { source: { secret: { secretName: "keys" } } } }];
  assert.deepEqual(secretsOf(machine({ template: { spec: { volumes, accessCredentials } } })).sort(), ["files", "keys", "net", "user"]);
  const made = { apiVersion: "v1", kind: "X", metadata: { name: "a", namespace: "b", uid: "u", resourceVersion: "1", generation: 2, creationTimestamp: "t", deletionTimestamp: "t", finalizers: ["f"], ownerReferences: [{}], managedFields: [], labels: { a: "b" } }, spec: { x: 1 }, status: { y: 1 } };
  assert.deepEqual(definitionOf(made), { apiVersion: "v1", kind: "X", metadata: { name: "a", namespace: "b", labels: { a: "b" } }, spec: { x: 1 } });
});

test("versions of a machine are compared in words, and one is restored without starting or stopping it", async () => {
  const { changesBetween, changeText, restoredYaml, versionsOf } = await load("model/history.ts");
  const spec = (guest, more = {}) => ({ runStrategy: "Halted", template: { spec: { domain: { memory: { guest } } } }, ...more });
  const revision = (number, data, annotations = {}) => ({ metadata: { name: `r-${number}`, creationTimestamp: "2026-01-01T00:00:00Z", annotations }, revision: number, data: { spec: data } });
  const versions = versionsOf([revision(2, spec("2Gi")), revision(10, spec("4Gi"), { "sheaf.io/changed-by": "kubectl-edit", "sheaf.io/changed-at": "2026-01-02T00:00:00Z" })]);
  assert.deepEqual(versions.map((one) => [one.number, one.by, one.at, one.before?.number]), [[10, "kubectl-edit", "2026-01-02T00:00:00Z", 2], [2, "", "2026-01-01T00:00:00Z", undefined]]);
  const cases = [
    [spec("2Gi"), spec("2Gi"), []],
    [spec("2Gi"), spec("4Gi"), ["memory.guest: 2Gi → 4Gi"]],
    [{ a: 1 }, { b: true }, ["a: 1 → –", "b: – → true"]],
    [{ disks: [{ name: "x", bus: "sata" }] }, { disks: [{ name: "y" }, { name: "x", bus: "virtio" }] }, ["x.bus: sata → virtio", "disks.y: – → …"]],
    [{ a: [1, 2] }, { a: [1] }, ["a.1: 2 → –"]],
    [{ a: { b: 1 } }, { a: "x".repeat(40) }, [`a: … → ${"x".repeat(30)}…`]],
  ];
  for (const [before, after, expected] of cases) assert.deepEqual(changesBetween(before, after).map(changeText), expected, JSON.stringify(after));
  const machine = { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "web", uid: "u", labels: { a: "b" } }, spec: spec("4Gi", { runStrategy: "Always" }), status: { x: 1 } };
  const text = restoredYaml(machine, versions[1]);
  assert.match(text, /guest: 2Gi/);
  assert.match(text, /runStrategy: Always/);
  assert.match(text, /a: b/);
  assert.doesNotMatch(text, /uid|status/);
  const once = { ...machine, spec: { running: true, template: {} } };
  assert.doesNotMatch(restoredYaml(once, versions[1]), /runStrategy/, "the field that is in use stays in use");
});

test("receivers of alarms show no token, and go through their form", async () => {
  const { addressText, EMPTY_RECEIVER, receiverCommand, receiverMissing, receiverObject, receiverStatus, secretObject, sendsText } = await load("model/receiver.ts");
  for (const [spec, text] of [[{ url: "https://me:pw@hooks.example:8443/services/TOKEN?x=1" }, "hooks.example:8443"], [{ urlSecret: { name: "chat" } }, "Secret chat/url"], [{ urlSecret: { name: "chat", key: "a" } }, "Secret chat/a"], [undefined, "–"]]) assert.equal(addressText({ metadata: {}, spec }), text);
  for (const [spec, text] of [[{}, "all"], [{ minimumSeverity: "critical" }, "critical"], [{ paused: true, minimumSeverity: "critical" }, "nothing"]]) assert.equal(sendsText({ metadata: {}, spec }), text);
  const state = (spec, conditions) => receiverStatus({ metadata: {}, spec, status: { conditions } });
  const refused = [{ type: "Delivered", status: "False", message: "404 Not Found" }];
  for (const [status, tone, word] of [[state({}), "off", "Nothing sent yet"], [state({}, [{ type: "Delivered", status: "True" }]), "ok", "Delivered"], [state({}, refused), "bad", "Not delivered"], [state({ paused: true }, refused), "off", "Not delivered"], [state({ paused: true }), "off", "Paused"]]) assert.deepEqual([status.tone, status.word], [tone, word]);
  assert.equal(state({}, refused).reason, "404 Not Found");
  const draft = { ...EMPTY_RECEIVER, name: "ops", url: "https://a.example/x" };
  assert.deepEqual(receiverObject(draft).spec, { url: "https://a.example/x", format: "alertmanager", minimumSeverity: "warning", sendResolved: true });
  assert.equal(receiverCommand(draft), "sheaf alarm receiver add ops --url https://a.example/x");
  const hidden = { ...draft, hidden: true, secret: "chat", format: "slack", criticalOnly: true, sendResolved: false };
  assert.deepEqual(receiverObject(hidden).spec, { urlSecret: { name: "chat", key: "url" }, format: "slack", minimumSeverity: "critical", sendResolved: false });
  assert.deepEqual(secretObject(hidden).stringData, { url: "https://a.example/x" });
  assert.equal(receiverCommand(hidden), "sheaf alarm receiver add ops --url-secret chat --format slack --critical-only --no-resolved");
  assert.deepEqual([secretObject(draft), secretObject({ ...hidden, url: "" })], [undefined, undefined]);
  for (const [change, why] of [[{}, undefined], [{ name: "" }, /name/], [{ name: "Ops" }, /name/], [{ url: "" }, /address/i], [{ url: "a.example" }, /http/], [{ hidden: true, secret: "" }, /Secret/], [{ hidden: true, secret: "chat", url: "" }, undefined]]) {
    if (why) assert.match(receiverMissing({ ...draft, ...change }), why);
    else assert.equal(receiverMissing({ ...draft, ...change }), undefined);
  }
});
