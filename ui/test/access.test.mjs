// Networks, roles and add-ons in real Chromium against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const server = new Server();
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

const choose = async (of, item) => {
  await page.getByRole("button", { name: `Actions of ${of}` }).first().click();
  await page.getByRole("menuitem", { name: item }).click();
};

test("an uplink, a VLAN on it and its addresses are created without a command", async () => {
  await visit(server, page, "/networks/uplinks");
  await page.getByRole("button", { name: "Create uplink" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Cluster network").fill("lan");
  await dialog.getByLabel("Network cards").fill("enp9s0");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("row", { name: /lan-uplink lan enp9s0/ }).waitFor();

  await page.getByRole("link", { name: "Networks of machines" }).click();
  await page.getByRole("button", { name: "Create network" }).first().click();
  await dialog.getByLabel("Name").fill("office");
  await dialog.getByLabel("VLAN", { exact: true }).fill("5000");
  await dialog.getByText("--cluster-network lan --vlan 5000").waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Create" }).getAttribute("aria-disabled"), "true", "there is no VLAN 5000");
  await dialog.getByLabel("VLAN", { exact: true }).fill("100");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("row", { name: /office default VLAN 100 lan lan-br/ }).waitFor();
  const made = await api(page, "GET", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/office");
  assert.equal(made.body.metadata.labels["network.harvesterhci.io/vlan-id"], "100");

  await page.getByRole("link", { name: "Addresses" }).click();
  await page.getByRole("button", { name: "Create address pool" }).first().click();
  await dialog.getByLabel("Network").selectOption("default/office");
  await dialog.getByLabel("Subnet").fill("192.168.100.0/24");
  await dialog.getByLabel("First address").fill("192.168.100.50");
  await dialog.getByLabel("Last address").fill("192.168.100.59");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("row", { name: /office default\/office 192.168.100.0\/24/ }).waitFor();

  await page.getByRole("link", { name: "Load balancers" }).click();
  await page.getByRole("button", { name: "Create load balancer" }).first().click();
  await dialog.getByLabel("Name").fill("web");
  await dialog.getByLabel("Label of the machines").fill("app=web");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("row", { name: /web default .* 80 → 80\/TCP 0 Not ready/ }).waitFor();
});

test("a composed role is given in a project, and the check says what it allows", async () => {
  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "nina" }, username: "nina", enabled: true };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status));
  await visit(server, page, "/users/roles");
  await page.getByRole("button", { name: "Create role" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("helpdesk");
  await dialog.getByLabel("Start, stop, restart and pause machines").check();
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("row", { name: /helpdesk See machines.*Start, stop, restart/ }).waitFor();

  await visit(server, page, "/projects/default");
  await page.getByRole("button", { name: "Add member" }).click();
  await dialog.getByLabel("User").fill("nina");
  await dialog.getByLabel("Role").selectOption("helpdesk");
  await dialog.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("region", { name: "Members" }).getByText("nina").waitFor();

  await visit(server, page, "/users/check");
  const ask = async (verb, resource, verdict) => {
    await page.getByLabel("User", { exact: true }).fill("nina");
    await page.getByLabel("Verb").selectOption(verb);
    await page.getByLabel("Resource").fill(resource);
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByRole("status").getByText(`auth can-i ${verb} ${resource.replace(/\/[a-z]+/, "")}`).waitFor();
    await page.getByRole("status").getByText(verdict, { exact: true }).waitFor();
  };
  await ask("update", "virtualmachines/start.subresources.kubevirt.io", "Allowed");
  await ask("delete", "virtualmachines.kubevirt.io", "Not allowed");

  await visit(server, page, "/users/roles");
  await choose("helpdesk", "Edit…");
  await dialog.getByLabel("Start, stop, restart and pause machines").uncheck();
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /helpdesk See machines, volumes, images and networks 1/ }).waitFor();
});

test("an add-on that does not exist here says so when it is enabled", async () => {
  await visit(server, page, "/addons");
  await choose("descheduler", "Enable");
  await page.getByText("descheduler addon cannot be enabled as not enough nodes exist in the cluster").waitFor();
  await choose("rancher-monitoring", "Enable");
  await page.getByRole("row", { name: /rancher-monitoring Enabled metrics are served/ }).waitFor();
  await choose("harvester-seeder", "Enable");
  await page.getByRole("row", { name: /harvester-seeder Not available .*BMC/ }).waitFor();
  await choose("rancher-monitoring", "Disable");
  await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
  await page.getByRole("row", { name: /rancher-monitoring Disabled metrics are served/ }).waitFor();
});
