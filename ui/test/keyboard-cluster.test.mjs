// Networks, backups, roles, hosts and the cluster without a mouse, in real Chromium against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server } from "./harness.mjs";
import { keysOf } from "./keys.mjs";

const server = new Server();
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const HARVESTER = "/apis/harvesterhci.io/v1beta1/namespaces/default";
let chrome;
let page;
let keys;

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  keys = keysOf(page);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const machine = {
    apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "web", namespace: "default" },
    spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
  };
  assert.equal((await api(page, "POST", MACHINES, machine)).status, 201);
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

const tab = (name) => keys.use(page.getByRole("navigation", { name: "Parts of the page" }).getByRole("link", { name, exact: true }));

test("an uplink, a VLAN on it, its addresses and a load balancer are created", async () => {
  await keys.press("g");
  await keys.press("n");
  await page.getByRole("heading", { level: 1, name: "Networks" }).waitFor();
  await tab("Uplinks");
  await keys.use(keys.button("Create uplink"));
  await keys.fill("Cluster network", "lan");
  await keys.fill("Network cards", "enp9s0");
  await keys.submit("Create");
  await page.getByRole("row", { name: /lan-uplink lan enp9s0/ }).waitFor();

  await tab("Networks of machines");
  await keys.use(keys.button("Create network"));
  await keys.fill("Name", "office");
  await keys.fill("VLAN", "5000");
  await keys.dialog.getByText("--cluster-network lan --vlan 5000").waitFor();
  await keys.press("Enter");
  assert.equal(await keys.dialog.getByRole("button", { name: "Create" }).getAttribute("aria-disabled"), "true", "there is no VLAN 5000");
  await keys.fill("VLAN", "100");
  await keys.press("Enter");
  await page.getByRole("row", { name: /office default VLAN 100 lan lan-br/ }).waitFor();

  await tab("Addresses");
  await keys.use(keys.button("Create address pool"));
  await keys.pick("Network", "default/office");
  await keys.fill("Subnet", "192.168.100.0/24");
  await keys.fill("First address", "192.168.100.50");
  await keys.fill("Last address", "192.168.100.59");
  await keys.submit("Create");
  await page.getByRole("row", { name: /office default\/office 192.168.100.0\/24/ }).waitFor();

  await tab("Load balancers");
  await keys.use(keys.button("Create load balancer"));
  await keys.fill("Name", "web");
  await keys.fill("Label of the machines", "app=web");
  await keys.submit("Create");
  await page.getByRole("row", { name: /web default .* 80 → 80\/TCP 0 Not ready/ }).waitFor();
});

test("a backup target is set, a machine is backed up and restored", async () => {
  await keys.press("g");
  await keys.press("b");
  const card = page.getByRole("region", { name: "Backup target" });
  await keys.use(card.getByRole("button", { name: "Set the target" }));
  await keys.pick("Type", /S3/i);
  for (const [label, text] of [["Endpoint", "http://127.0.0.1:9"], ["Bucket", "backups"], ["Region", "us-east-1"], ["Access key", "key"], ["Secret key", "secret"]]) await keys.fill(label, text);
  await keys.submit("Save and try it");
  await card.getByText(/Not reached/).waitFor({ timeout: 60_000 });

  await keys.use(keys.button("Back up a machine"));
  await keys.pick("Machine", /^web/);
  await keys.fill("Name", "monday");
  await keys.submit("Back up");
  await page.getByRole("row", { name: /monday/ }).waitFor();
  const done = {
    apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineBackup", metadata: { name: "sunday", namespace: "default" },
    spec: { type: "backup", source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "web" } },
    status: { readyToUse: true, progress: 100, volumeBackups: [{ volumeName: "d", volumeSize: 2 ** 30 }] },
  };
  assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinebackups`, done)).status, 201);
  await page.getByRole("row", { name: /sunday.*Ready/ }).waitFor();
  await keys.choose("sunday", "Restore as new machine…");
  await keys.submit("Create machine");
  await page.waitForFunction((path) => fetch(path).then((answer) => answer.json()).then((list) => list.items.some((one) => one.spec.target.name === "web-restored")), `${HARVESTER}/virtualmachinerestores`);
});

test("backups are scheduled, suspended, and the schedule is deleted", async () => {
  await tab("Schedules");
  await keys.use(keys.button("Create schedule"));
  await keys.pick("Machine", /^web/);
  await keys.fill("Schedule", "0 3 * * *");
  await keys.submit("Create");
  const row = page.getByRole("row", { name: /web-nightly/ });
  await row.getByText("Active").waitFor();
  await keys.choose("web-nightly", "Suspend");
  await row.getByText("Suspended").waitFor();
  await keys.choose("web-nightly", "Delete");
  await keys.submit("Delete");
  await page.getByText("No schedules yet").waitFor();
});

test("a host says what its loss would mean, and why it cannot be emptied", async () => {
  await keys.press("g");
  await keys.press("h");
  await keys.use(page.locator(".card h2 a").first());
  const loss = page.getByRole("region", { name: "If this host is lost" });
  await keys.use(loss.getByRole("button", { name: "Check" }));
  await loss.getByText(/would start elsewhere · .* would stay down/).waitFor();
  await keys.use(keys.button("Maintenance…"));
  await keys.dialog.getByText(/single controlplane cluster/).waitFor();
  await keys.press("Escape");
  await keys.dialog.waitFor({ state: "detached" });
  assert.equal(await keys.button("Maintenance…").evaluate((one) => one === document.activeElement), true, "the focus is back at the button");
});

test("a role is composed, and access is checked", async () => {
  await keys.go("Users");
  await tab("Roles");
  await keys.use(keys.button("Create role"));
  await keys.fill("Name", "helpdesk");
  await keys.use(keys.dialog.getByLabel("Start, stop, restart and pause machines"), "Space");
  await keys.submit("Create");
  await page.getByRole("row", { name: /helpdesk See machines.*Start, stop, restart/ }).waitFor();
  await tab("Check access");
  await keys.fill("User", "nobody-here");
  await keys.pick("Verb", "delete");
  await keys.fill("Resource", "virtualmachines.kubevirt.io");
  await keys.press("Enter");
  await page.getByRole("status").getByText("Not allowed", { exact: true }).waitFor();
});

test("an add-on is switched", async () => {
  await keys.go("Add-ons");
  await keys.choose("rancher-monitoring", "Enable");
  await page.getByRole("row", { name: /rancher-monitoring Enabled/ }).waitFor();
  await keys.choose("rancher-monitoring", "Disable");
  await keys.submit("Disable");
  await page.getByRole("row", { name: /rancher-monitoring Disabled/ }).waitFor();
});

test("a support bundle is made and downloaded", async () => {
  await keys.go("Support");
  await keys.use(keys.button("Create bundle"));
  await keys.fill("What is wrong", "nothing, it is a test");
  await keys.submit("Create");
  const link = page.getByRole("link", { name: "Download" });
  await link.waitFor({ timeout: 30_000 });
  const begun = page.waitForEvent("download");
  await keys.use(link);
  assert.match((await begun).suggestedFilename(), /^supportbundle_.*\.zip$/);
});

test("an upgrade to a file that is no program fails, and is aborted", async () => {
  await keys.go("Upgrade");
  await keys.use(keys.button("Upgrade…"));
  await keys.chooseFile("Program", { name: "sheaf", mimeType: "application/octet-stream", buffer: Buffer.from("not a program") });
  await keys.submit("Upgrade");
  await page.getByText("does not run on this machine").first().waitFor({ timeout: 60_000 });
  await keys.use(keys.button("Abort and go back"));
  await keys.submit("Abort and go back");
  await page.getByText("Aborted", { exact: true }).first().waitFor({ timeout: 30_000 });
});

test("somebody with few rights gets to what is allowed, and is told about the rest", async () => {
  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "vera" }, username: "vera", enabled: true };
  assert.equal((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status, 201);
  assert.equal((await api(page, "POST", "/v3/users/vera?action=setpassword", { newPassword: "vera-password-1" })).status, 200);
  const binding = {
    apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: "user-vera-view" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "vera" }],
  };
  assert.equal((await api(page, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).status, 201);
  const view = await open(server, chrome, { login: false });
  const own = keysOf(view);
  await view.getByLabel("Password").waitFor();
  await own.fill("User", "vera");
  await own.fill("Password", "vera-password-1");
  await own.press("Enter");
  await view.getByRole("heading", { name: "Overview" }).waitFor();
  await own.press("g");
  await own.press("m");
  await own.use(own.button("Actions of web"));
  const item = view.getByRole("menuitem", { name: "Delete", exact: true });
  await own.reach(item, "ArrowDown");
  assert.equal(await item.getAttribute("aria-disabled"), "true");
  assert.match(await item.getAttribute("title"), /Not allowed/);
  await own.press("Enter");
  assert.equal(await view.getByRole("dialog").count(), 0);
  await own.press("Escape");
  assert.equal(await own.button("Actions of web").evaluate((one) => one === document.activeElement), true, "the focus is back at the button");
  await own.press("Control+k");
  await view.keyboard.type("delete web");
  await view.getByText("Nothing matches.").waitFor();
  assert.deepEqual(view.problems, []);
  await view.context().close();
});
