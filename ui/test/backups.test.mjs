// Backups and schedules of machines, in real Chromium against the real server. Writes pictures with
// PICTURES=FOLDER.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const HARVESTER = "/apis/harvesterhci.io/v1beta1/namespaces/default";
const server = new Server();
let chrome;
let page;

const picture = async (name) => {
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, `${name}.png`) });
};

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  for (const name of ["web", "db"]) {
    const machine = {
      apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" },
      spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
    };
    assert.equal((await api(page, "POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", machine)).status, 201);
  }
});
after(async () => {
  await chrome?.close();
  await server.remove();
});

test("a backup target is set, and the page tells whether it was reached", async () => {
  await visit(server, page, "/backups");
  await page.getByText("No backups yet").waitFor();
  const card = page.getByRole("region", { name: "Backup target" });
  await card.getByText("Not set").waitFor();
  await card.getByRole("button", { name: "Set the target" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Type").selectOption("s3");
  const save = dialog.getByRole("button", { name: "Save and try it" });
  for (const [label, text] of [["Endpoint", "http://127.0.0.1:9"], ["Bucket", "backups"], ["Region", "us-east-1"], ["Access key", "key"], ["Secret key", "secret"]]) {
    assert.equal(await save.isDisabled(), true, label);
    await dialog.getByLabel(label, { exact: true }).fill(text);
  }
  await picture("backup-target");
  await save.click();
  await dialog.waitFor({ state: "detached" });
  await card.getByText("backups (us-east-1)").waitFor();
  await card.getByText(/Not reached/).waitFor({ timeout: 60_000 });
});

test("a machine is backed up, and a backup becomes a new machine or replaces its own", async () => {
  await visit(server, page, "/backups");
  await page.getByRole("button", { name: "Back up a machine" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Machine").selectOption("web");
  await dialog.getByLabel("Name").fill("monday");
  await dialog.getByRole("button", { name: "Back up" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("row", { name: /monday/ }).waitFor();
  const made = (await api(page, "GET", `${HARVESTER}/virtualmachinebackups/monday`)).body;
  assert.deepEqual([made.spec.type, made.spec.source.name], ["backup", "web"]);

  // One that was made before, and one that is on its way.
  for (const [name, status] of [["sunday", { readyToUse: true, progress: 100, volumeBackups: [{ volumeName: "d", volumeSize: 2 ** 30 }] }], ["saturday", { readyToUse: false, error: { message: "no space on the target" } }]]) {
    const backup = { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineBackup", metadata: { name, namespace: "default" }, spec: { type: "backup", source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "web" } }, status };
    assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinebackups`, backup)).status, 201);
  }
  await page.getByRole("row", { name: /sunday.*Ready/ }).waitFor();
  await picture("backups");
  for (const [item, action, newVM, target] of [["Restore as new machine…", "Create machine", true, "web-restored"], ["Replace the machine…", "Replace", false, "web"]]) {
    await page.getByRole("button", { name: "Actions of sunday" }).click();
    await page.getByRole("menuitem", { name: item }).click();
    await page.getByRole("dialog").getByRole("button", { name: action }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    const found = async () => (await api(page, "GET", `${HARVESTER}/virtualmachinerestores`)).body.items.find((one) => one.spec.target.name === target);
    await page.waitForFunction((path) => fetch(path).then((answer) => answer.json()).then((list) => list.items.length > 0), `${HARVESTER}/virtualmachinerestores`);
    for (let tries = 0; tries < 50 && !(await found()); tries++) await page.waitForTimeout(100);
    assert.deepEqual([(await found())?.spec.newVM, (await found())?.spec.virtualMachineBackupName], [newVM, "sunday"], item);
  }
});

test("a machine gets a schedule, which is suspended, resumed and deleted", async () => {
  await visit(server, page, "/machines/default/db/backups");
  await page.getByText("Nothing is made by schedule.").waitFor();
  await page.getByRole("button", { name: "Create schedule" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Schedule", { exact: true }).fill("*/5 * * * *");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText(/granularity 5m0s less than 1h0m0s/).waitFor();
  await dialog.getByLabel("Schedule", { exact: true }).fill("0 3 * * *");
  await picture("schedule-form");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("0 3 * * *").waitFor();
  await picture("machine-backups");

  await visit(server, page, "/backups/schedules");
  const row = page.getByRole("row", { name: /db-nightly/ });
  await row.getByText("Active").waitFor();
  const choose = async (item) => {
    await page.getByRole("button", { name: "Actions of db-nightly" }).click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  await choose("Suspend");
  await row.getByText("Suspended").waitFor();
  await picture("schedules");
  const path = `${HARVESTER}/schedulevmbackups/db-nightly`;
  assert.equal((await api(page, "GET", path)).body.spec.suspend, true);
  await choose("Resume");
  await row.getByText("Active").waitFor();
  await choose("Delete");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No schedules yet").waitFor();
  assert.equal((await api(page, "GET", path)).status, 404);
  assert.deepEqual(page.problems, []);
});
