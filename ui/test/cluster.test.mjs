// What those who run a cluster do with the dashboard, in real Chromium against the real server: hosts, projects,
// tasks, snapshots, support, upgrades.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const server = new Server();
let chrome;
let page;
const NAMESPACED = (group, namespace, plural) => `/apis/${group}/namespaces/${namespace}/${plural}`;
const MACHINES = NAMESPACED("kubevirt.io/v1", "default", "virtualmachines");

/** A machine without disks that does not run. */
const machine = (name) => ({
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" },
  spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
});

async function until(what, check) {
  for (let round = 0; ; round += 1) {
    const found = await check();
    if (found) return found;
    assert.ok(round < 100, what);
    await page.waitForTimeout(100);
  }
}

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.ok([201, 409].includes((await api(page, "POST", MACHINES, machine("old"))).status));
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

const choose = async (on, of, item) => {
  await on.getByRole("button", { name: `Actions of ${of}` }).first().click();
  await on.getByRole("menuitem", { name: item }).click();
};

test("a snapshot becomes a new machine, and a clone has the name that was typed", async () => {
  await visit(server, page, "/machines/default/old/snapshots");
  await page.getByRole("button", { name: "Take snapshot" }).first().click();
  await page.getByRole("dialog").getByLabel("Name").fill("monday");
  await page.getByRole("dialog").getByRole("button", { name: "Take snapshot" }).click();
  await page.getByRole("row", { name: /monday the machine continues from here Ready/ }).waitFor({ timeout: 60_000 });
  await choose(page, "monday", "Restore as new machine…");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name of the new machine").fill("Bad Name");
  await dialog.getByText("A name has lower-case letters").waitFor();
  await dialog.getByLabel("Name of the new machine").fill("fresh");
  await dialog.getByRole("button", { name: "Create machine" }).click();
  await page.getByRole("link", { name: "Show fresh" }).click();
  await page.getByRole("heading", { name: "fresh" }).waitFor();
  await choose(page, "fresh", "Clone");
  await dialog.getByLabel("Name of the new machine").fill("copy");
  await dialog.getByRole("button", { name: "Clone" }).click();
  await visit(server, page, "/tasks");
  await page.getByRole("row", { name: /Clone copy default Done/ }).waitFor({ timeout: 60_000 });
  await page.getByRole("row", { name: /Restore fresh default Done/ }).waitFor();
  await page.getByRole("button", { name: "Failed" }).click();
  await page.getByText("Nothing matches").waitFor();
});

test("a snapshot that a backup object made goes with that object", async () => {
  const backup = {
    apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineBackup", metadata: { name: "kept", namespace: "default" },
    spec: { source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "old" }, type: "snapshot" },
  };
  const path = NAMESPACED("harvesterhci.io/v1beta1", "default", "virtualmachinebackups");
  assert.equal((await api(page, "POST", path, backup)).status, 201);
  await visit(server, page, "/snapshots");
  await page.getByRole("row", { name: /kept .*Ready/ }).waitFor({ timeout: 60_000 });
  await choose(page, "kept", "Delete");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /kept/ }).waitFor({ state: "detached" });
  assert.equal((await api(page, "GET", `${path}/kept`)).status, 404);
});

test("a host shows what it has and used, and says why it cannot be spared", async () => {
  await visit(server, page, "/hosts");
  const name = (await page.locator(".card h2 a").first().textContent()) ?? "";
  await page.locator(".card h2 a").first().click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
  await page.getByRole("region", { name: "Disks" }).getByText("default-disk", { exact: true }).waitFor();
  await page.getByRole("img", { name: /^Memory: now used [1-9]/ }).waitFor({ timeout: 40_000 });
  await page.getByRole("button", { name: "Last day" }).click();
  assert.match(page.url(), /span=24h/);
  const loss = page.getByRole("region", { name: "If this host is lost" });
  await loss.getByRole("button", { name: "Check" }).click();
  await loss.getByText(/would start elsewhere · .* would stay down/).waitFor();
  await loss.getByRole("button", { name: "Check again" }).waitFor();
  await page.getByRole("button", { name: "Maintenance…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/single controlplane cluster/).waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Begin maintenance" }).getAttribute("aria-disabled"), "true");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Cordon" }).click();
  await dialog.getByRole("button", { name: "Cordon" }).click();
  await page.getByText("Cordoned", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Uncordon" }).click();
  await page.getByText("Cordoned", { exact: true }).waitFor({ state: "detached" });
});

test("a volume shows where its data is and who uses it", async () => {
  const claim = { metadata: { name: "data", namespace: "default" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "1Gi" } } } };
  assert.equal((await api(page, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)).status, 201);
  const user = machine("user");
  user.spec.template.spec.volumes = [{ name: "root", persistentVolumeClaim: { claimName: "data" } }];
  user.spec.template.spec.domain.devices.disks = [{ name: "root", disk: { bus: "virtio" } }];
  assert.equal((await api(page, "POST", MACHINES, user)).status, 201);
  await visit(server, page, "/volumes");
  await page.getByRole("link", { name: "data", exact: true }).click();
  const facts = page.getByRole("region", { name: "Volume" });
  await facts.getByText("1 Gi", { exact: true }).waitFor();
  await page.getByRole("region", { name: "Copies" }).getByText(/of 3$/).waitFor();
  await facts.getByRole("link", { name: "user" }).click();
  await page.getByRole("heading", { name: "user" }).waitFor();
});

test("a colleague gets a project with a limit, and loses it again", async () => {
  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "kim" }, username: "kim", enabled: true };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status));
  assert.equal((await api(page, "POST", "/v3/users/kim?action=setpassword", { newPassword: "kim-password-12" })).status, 200);
  await visit(server, page, "/projects");
  await page.getByRole("button", { name: "Create project" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("team");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "team" }).waitFor();
  await page.getByRole("button", { name: "Add member" }).click();
  await dialog.getByLabel("User").fill("kim");
  await dialog.getByLabel("Role").selectOption("edit");
  await dialog.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("region", { name: "Members" }).getByText("kim").waitFor();
  await page.getByRole("button", { name: "Set limits" }).click();
  await dialog.getByLabel("Machines", { exact: true }).fill("1");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("0 / 1").waitFor();

  const kim = await open(server, chrome, { user: "kim", password: "kim-password-12" });
  await kim.getByRole("button", { name: "kim" }).waitFor();
  const own = NAMESPACED("kubevirt.io/v1", "team", "virtualmachines");
  const of = (name) => ({ ...machine(name), metadata: { name, namespace: "team" } });
  assert.equal((await api(kim, "POST", own, of("one"))).status, 201);
  assert.equal((await api(kim, "POST", own, of("two"))).status, 403, "the quota holds");
  assert.equal(await kim.getByRole("link", { name: "Hosts" }).count(), 0);
  await visit(server, kim, "/machines/team/one");
  await kim.getByRole("button", { name: "Actions of one" }).click();
  const migrate = kim.getByRole("menuitem", { name: "Migrate" });
  assert.equal(await migrate.getAttribute("aria-disabled"), "true", "kim may not migrate");
  assert.deepEqual(kim.problems, []);
  await page.getByText("1 / 1").waitFor();
  await page.getByRole("button", { name: "Remove kim (edit)" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await page.getByText("Only those with a role in the whole cluster work here.").waitFor();
  assert.equal((await api(kim, "GET", own)).status, 403);
  await kim.context().close();
});

test("a support bundle is made and downloaded", async () => {
  await visit(server, page, "/support");
  await page.getByRole("button", { name: "Create bundle" }).click();
  await page.getByLabel("What is wrong").fill("nothing, it is a test");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  const begun = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download" }).click({ timeout: 30_000 });
  assert.match((await begun).suggestedFilename(), /^supportbundle_.*\.zip$/);
});

test("an upgrade to a file that is no program fails with the reason, and is aborted", async () => {
  await visit(server, page, "/upgrade");
  await page.getByText("There was no upgrade of this cluster.").waitFor();
  await page.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Program").setInputFiles({ name: "sheaf", mimeType: "application/octet-stream", buffer: Buffer.from("not a program") });
  await dialog.getByRole("button", { name: "Upgrade", exact: true }).click();
  await page.getByText("does not run on this machine").first().waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Try again" }).waitFor();
  await page.getByRole("button", { name: "Abort and go back" }).click();
  await dialog.getByRole("button", { name: "Abort and go back" }).click();
  await page.getByText("Aborted", { exact: true }).first().waitFor({ timeout: 30_000 });
});

test("a viewer sees no button that fails", async () => {
  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "vera" }, username: "vera", enabled: true };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status));
  assert.equal((await api(page, "POST", "/v3/users/vera?action=setpassword", { newPassword: "vera-password-1" })).status, 200);
  const binding = {
    apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: "user-vera-view" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "vera" }],
  };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).status));
  const vera = await open(server, chrome, { user: "vera", password: "vera-password-1" });
  await vera.getByRole("button", { name: "vera" }).waitFor();
  for (const path of ["/", "/machines/default/old", "/machines/default/old/snapshots", "/machines/default/old/disks", "/snapshots", "/tasks", "/projects", "/projects/default"]) {
    await visit(server, vera, path);
    for (const name of ["Take snapshot", "Attach volume", "Create machine", "Create project", "Add member", "Set limits", "Cordon", "Maintenance…"]) {
      const buttons = vera.getByRole("button", { name, exact: true });
      const usable = await buttons.evaluateAll((all) => all.filter((one) => one.getAttribute("aria-disabled") !== "true").length);
      assert.equal(usable, 0, `${path}: ${name}`);
    }
  }
  await visit(server, vera, "/machines/default/old");
  await vera.getByRole("button", { name: "Actions of old" }).click();
  const items = vera.getByRole("menuitem");
  const able = await until("the menu is open", async () => ((await items.count()) > 5 ? items.evaluateAll((all) => all.filter((one) => one.getAttribute("aria-disabled") !== "true").map((one) => one.textContent)) : null));
  assert.deepEqual(able, ["Copy kubectl command"]);
  for (const [path, of, reads] of [["/snapshots", "monday", []]]) {
    await visit(server, vera, path);
    await vera.getByRole("button", { name: `Actions of ${of}` }).click();
    await items.first().waitFor();
    const usable = () => items.evaluateAll((all) => all.filter((one) => one.getAttribute("aria-disabled") !== "true").map((one) => one.textContent));
    await until(`${path} lets a viewer read only`, async () => String(await usable()) === String(reads));
  }
  assert.deepEqual(vera.problems, []);
  await vera.context().close();
});
