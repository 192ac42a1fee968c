// The versions of a machine, in real Chromium against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const server = new Server();
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
let chrome;
let page;

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

const machine = {
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "web", namespace: "default" },
  spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
};
const guest = async () => (await api(page, "GET", `${MACHINES}/web`)).body.spec.template.spec.domain.memory.guest;

test("a machine's versions are compared, and one is restored after a review", async () => {
  const made = await api(page, "POST", MACHINES, machine);
  assert.equal(made.status, 201);
  await visit(server, page, "/machines/default/web/history");
  await page.getByRole("row", { name: /1 now .*the oldest that is kept/ }).waitFor();
  const { body: now } = await api(page, "GET", `${MACHINES}/web`);
  now.spec.template.spec.domain.memory.guest = "128Mi";
  assert.equal((await api(page, "PUT", `${MACHINES}/web?fieldManager=operator`, now)).status, 200);
  await page.getByRole("row", { name: /2 now operator .*memory.guest: 64Mi → 128Mi/ }).waitFor();
  await page.getByRole("button", { name: "Compare version 2" }).click();
  const comparison = page.getByRole("region", { name: "Comparison" });
  await comparison.getByText("From version 1 to 2").waitFor();
  await comparison.getByText(/^- +guest: 64Mi/).waitFor();
  await comparison.getByText(/^\+ +guest: 128Mi/).waitFor();

  await page.getByRole("link", { name: "Restore version 1" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Nothing has been changed yet.").waitFor();
  await dialog.getByText(/^\+ +guest: 64Mi/).waitFor();
  await dialog.getByRole("button", { name: "Back" }).click();
  assert.equal(await guest(), "128Mi", "it is the user who saves");
  await page.getByRole("button", { name: "Review changes" }).click();
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(await guest(), "64Mi");
  assert.doesNotMatch(page.url(), /version=/);
  await page.getByRole("link", { name: "History" }).click();
  await page.getByRole("row", { name: /3 now sheaf-ui .*memory.guest: 128Mi → 64Mi/ }).waitFor();
});
