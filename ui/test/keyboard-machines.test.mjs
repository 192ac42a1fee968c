// Machines, their disks, snapshots and images without a mouse, in real Chromium against the real server.
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

/** A machine without disks. */
const machine = (name, more = {}) => ({
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" },
  spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} }, ...more } } },
});

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome, { login: false });
  keys = keysOf(page);
  await page.getByLabel("Password").waitFor();
  await keys.fill("Password", server.password);
  await keys.press("Enter");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

test("an image is uploaded, and a machine is created from it", async () => {
  await keys.go("Images");
  await keys.use(keys.button("Upload"));
  await keys.chooseFile("Drop a file here, or choose one", { name: "tiny.img", mimeType: "application/octet-stream", buffer: Buffer.alloc(1 << 20) });
  await keys.fill("Name", "tiny");
  await keys.submit("Upload");
  await page.getByRole("row", { name: /tiny Ready/ }).waitFor({ timeout: 60_000 });
  await keys.choose("tiny", "Create machine");
  await page.getByRole("heading", { name: "Create machine" }).waitFor();
  await keys.fill("Name", "fromimage");
  await keys.fill("Disk size in Gi", "1");
  await keys.fill("Memory in Mi", "64");
  await keys.use(page.getByRole("checkbox", { name: "Start it" }), "Space");
  await page.getByText("The server accepts this machine.").waitFor();
  await keys.use(page.locator(".bottom-bar").getByRole("button", { name: "Create machine" }));
  await page.getByRole("heading", { level: 1, name: "fromimage" }).waitFor();
  const made = (await api(page, "GET", `${MACHINES}/fromimage`)).body;
  assert.equal(JSON.stringify(made).includes("default/tiny"), true);
});

test("a machine is started, and the page says why it does not run", async () => {
  const disks = { disks: [{ name: "disk", disk: { bus: "virtio" } }] };
  const lacking = machine("lacking", { domain: { memory: { guest: "64Mi" }, devices: disks }, volumes: [{ name: "disk", persistentVolumeClaim: { claimName: "no-such-volume" } }] });
  assert.equal((await api(page, "POST", MACHINES, lacking)).status, 201);
  await keys.press("Control+k");
  await page.keyboard.type("start lacking");
  await page.getByRole("option", { name: /Start lacking/ }).waitFor();
  await keys.press("Enter");
  await page.getByRole("log").getByText("Start: lacking").waitFor();
  await keys.press("Control+k");
  await page.keyboard.type("lacking");
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "lacking" }).waitFor();
  await page.getByRole("region", { name: "Findings" }).getByText(/no-such-volume/).first().waitFor();
});

test("a machine goes back to a snapshot, and another is made of it", async () => {
  assert.equal((await api(page, "POST", MACHINES, machine("old"))).status, 201);
  await keys.press("g");
  await keys.press("m");
  const row = page.getByRole("row", { name: /^old|old / }).first();
  await row.waitFor();
  await keys.press("/");
  await page.keyboard.type("old");
  await page.getByText(/^1 of /).waitFor();
  await keys.reach(row);
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "old" }).waitFor();
  await keys.use(page.getByRole("link", { name: "Snapshots", exact: true }).last());
  await keys.use(keys.button("Take snapshot"));
  await keys.fill("Name", "monday");
  await keys.press("Enter");
  await page.getByRole("row", { name: /monday the machine continues from here Ready/ }).waitFor({ timeout: 60_000 });
  await keys.choose("monday", "Restore…");
  await keys.submit("Restore");
  await page.getByRole("log").getByText("Restore: old").waitFor();
  await keys.choose("monday", "Restore as new machine…");
  await keys.fill("Name of the new machine", "fresh");
  await keys.submit("Create machine");
  await page.getByRole("link", { name: "Show fresh" }).waitFor();
  await keys.press("a");
  await keys.use(page.getByRole("link", { name: "Show fresh" }));
  await page.getByRole("heading", { level: 1, name: "fresh" }).waitFor();
  await keys.go("Tasks");
  await page.getByRole("row", { name: /Restore fresh default Done/ }).waitFor({ timeout: 60_000 });
  await page.getByRole("row", { name: /Restore old default Done/ }).waitFor();
  await keys.use(keys.button("Failed"), "Space");
  await page.getByText("Nothing matches").waitFor();
  assert.equal(await keys.button("Failed").getAttribute("aria-pressed"), "true");
});

test("a volume is attached to a running machine, grown and detached", async () => {
  const claim = { metadata: { name: "extra", namespace: "default" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "1Gi" } } } };
  assert.equal((await api(page, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)).status, 201);
  const running = machine("running");
  running.spec.runStrategy = "Always";
  assert.equal((await api(page, "POST", MACHINES, running)).status, 201);
  await keys.press("g");
  await keys.press("v");
  await page.getByRole("row", { name: /extra default (Not in use|Ready)/ }).waitFor({ timeout: 60_000 });
  await keys.press("g");
  await keys.press("m");
  await page.getByRole("row", { name: /running Running/ }).waitFor({ timeout: 120_000 });
  await keys.press("Control+k");
  await page.keyboard.type("running");
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "running" }).waitFor();
  await keys.use(page.getByRole("link", { name: "Disks", exact: true }));
  await keys.use(keys.button("Attach volume"));
  await keys.pick("Volume", /^extra/);
  await keys.submit("Attach");
  await page.getByRole("row", { name: /extra extra 1 Gi/ }).waitFor({ timeout: 60_000 });
  await keys.choose("extra", "Grow…");
  await keys.fill("New size in Gi", "2");
  await keys.submit("Grow");
  await page.getByRole("row", { name: /extra extra 2 Gi/ }).waitFor({ timeout: 60_000 });
  await keys.choose("extra", "Detach");
  await keys.submit("Detach");
  await page.getByRole("row", { name: /extra/ }).waitFor({ state: "detached", timeout: 60_000 });
});

test("a volume shows where its data is", async () => {
  await keys.press("g");
  await keys.press("v");
  await page.getByRole("row", { name: /fromimage/ }).waitFor();
  await keys.press("/");
  await page.keyboard.type("extra");
  await page.getByRole("row", { name: /fromimage/ }).waitFor({ state: "detached" });
  await keys.reach(page.getByRole("row", { name: /extra/ }));
  await keys.press("Enter");
  await page.getByRole("heading", { level: 1, name: "extra" }).waitFor();
  const copies = page.getByRole("region", { name: "Copies" });
  await copies.getByText(/of 3$/).waitFor();
  await keys.use(copies.getByRole("link").first());
  await page.getByRole("region", { name: "If this host is lost" }).waitFor();
});

test("a template is deleted with its versions, and brought back", async () => {
  const template = { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineTemplate", metadata: { name: "small", namespace: "default" }, spec: { description: "a small one" } };
  const version = { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineTemplateVersion", metadata: { name: "small-v1", namespace: "default" }, spec: { templateId: "default/small", vm: { spec: machine("x").spec } } };
  version.spec.vm.spec.template.spec.domain.resources = { limits: { cpu: "1", memory: "64Mi" } };
  assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinetemplates`, template)).status, 201);
  assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinetemplateversions`, version)).status, 201);
  await keys.go("Templates");
  await page.getByRole("row", { name: /small .*a small one.* 1 / }).waitFor();
  await keys.choose("small", "Delete");
  await keys.submit("Delete");
  await page.getByRole("row", { name: /a small one/ }).waitFor({ state: "detached" });
  await page.waitForFunction((path) => fetch(path).then((answer) => answer.status === 404), `${HARVESTER}/virtualmachinetemplateversions/small-v1`);
  await page.getByRole("log").getByText("Deleted: small").waitFor();
  await keys.press("u");
  await page.getByRole("row", { name: /small .*a small one.* 1 / }).waitFor();
});
