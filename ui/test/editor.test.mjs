// The YAML editor with the server's schema, and deletes that are taken back, in real Chromium against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const server = new Server();
let chrome;
let page;
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const HARVESTER = "/apis/harvesterhci.io/v1beta1/namespaces/default";

/** A machine without disks that does not run. */
const machine = (name) => ({
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" },
  spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
});

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  for (const name of ["web", "db"]) assert.equal((await api(page, "POST", MACHINES, machine(name))).status, 201);
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

const line = (text) => page.locator(".cm-line", { hasText: text });
/** The schema has come, and what is typed is completed. */
const ready = () => page.locator(".cm-content[aria-autocomplete]").waitFor({ timeout: 60_000 });
const option = (name) => page.getByRole("option", { name });
/** Takes what is offered; the list takes no key in the first moments. */
const accept = async (name, key = "Enter") => {
  await option(name).first().waitFor();
  await page.waitForTimeout(200);
  await page.keyboard.press(key);
};

test("fields and values are completed from the server's schema", async () => {
  const asked = [];
  page.on("request", (request) => request.url().includes("/openapi/") && asked.push(new URL(request.url()).pathname));
  await visit(server, page, "/machines/default/web");
  assert.deepEqual(asked, [], "schemas are read when an editor is shown");
  await page.getByRole("link", { name: "YAML" }).click();
  await ready();
  await line(/^ +domain:/).click();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await page.keyboard.type("reboot");
  await option(/rebootPolicy/).waitFor();
  await page.locator(".cm-completionInfo").getByText(/reboot/i).first().waitFor();
  await accept(/rebootPolicy/);
  await line(/^ +rebootPolicy: $/).waitFor();
  await page.keyboard.press("Control+Space");
  await option("Reboot").waitFor();
  await page.keyboard.type("Ter");
  await accept("Terminate", "Tab");
  await line(/^ +rebootPolicy: Terminate$/).waitFor();
  await page.keyboard.press("Enter");
  await page.keyboard.type("memo");
  await page.keyboard.press("Control+Space");
  assert.equal(await option(/^memory/).count(), 0, "a field that is there already is not offered");
  for (let key = 0; key < 4; key += 1) await page.keyboard.press("Backspace");
  await page.getByRole("link", { name: "Summary" }).click();
  await page.getByRole("link", { name: "YAML" }).click();
  await line(/^ +domain:/).waitFor();
  assert.deepEqual(asked, ["/openapi/v3/apis/kubevirt.io/v1"], "a schema is read once");
});

test("a field describes itself to the mouse and to the keyboard", async () => {
  await visit(server, page, "/machines/default/web/yaml");
  await ready();
  const help = page.getByRole("note").filter({ hasText: "Run strategy" });
  await line(/^ +runStrategy/).click({ position: { x: 90, y: 8 } });
  await page.keyboard.press("Home");
  await page.keyboard.press("F1");
  await help.waitFor();
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1 }).hover();
  const box = await page.getByText("runStrategy", { exact: true }).boundingBox();
  await page.mouse.move(box.x + 20, box.y + 6);
  await page.mouse.move(box.x + 24, box.y + 7);
  await help.waitFor();
});

test("an unknown field and a wrong value are marked while they are typed", async () => {
  await visit(server, page, "/machines/default/web/yaml");
  await ready();
  await line(/^ +runStrategy/).click();
  await page.keyboard.press("End");
  await page.keyboard.type("\nrunStrateg: Always\nrunning: perhaps");
  await page.keyboard.press("Escape");
  const problems = page.getByRole("status", { name: "Problems" });
  await problems.getByRole("button", { name: /Line \d+: Unknown field spec.runStrateg$/ }).waitFor();
  await problems.getByRole("button", { name: /spec.running has to be: boolean/ }).waitFor();
  assert.deepEqual(await page.locator(".cm-problem").allTextContents(), ["runStrateg", "perhaps"]);
  await problems.getByRole("button", { name: /runStrateg$/ }).click();
  await page.keyboard.type("x");
  await problems.getByRole("button", { name: /Unknown field spec.xrunStrateg$/ }).waitFor();
  await page.getByRole("button", { name: "Discard" }).click();
  await problems.getByRole("button").first().waitFor({ state: "detached" });
});

test("a kind of the API without a screen is completed as well", async () => {
  const policy = { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: { name: "closed", namespace: "default" }, spec: { podSelector: {} } };
  assert.equal((await api(page, "POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", policy)).status, 201);
  await visit(server, page, "/api/networking.k8s.io/v1/networkpolicies/default/closed");
  await ready();
  await line(/^spec:/).click();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await page.keyboard.type("egr");
  await accept(/^egress/);
  await line(/^ +egress:$/).waitFor();
  await line(/^ +- $/).waitFor();
});

/** Deletes an object on its page of the API. */
async function deleteOnPage(path, name) {
  await visit(server, page, path);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByLabel(/^Type/).fill(name);
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("log").getByText(`Deleted: ${name}`).waitFor();
}

test("a key and a template with its versions come back after a delete", async () => {
  const key = { apiVersion: "harvesterhci.io/v1beta1", kind: "KeyPair", metadata: { name: "mine", namespace: "default" }, spec: { publicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me" } };
  assert.equal((await api(page, "POST", `${HARVESTER}/keypairs`, key)).status, 201);
  await visit(server, page, "/keys");
  await page.getByRole("button", { name: "Actions of mine" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /mine/ }).waitFor({ state: "detached" });
  await page.getByRole("log").getByRole("button", { name: "Undo" }).click();
  await page.getByRole("log").getByText("Created again: mine").waitFor();
  await page.getByRole("row", { name: /mine/ }).waitFor();
  assert.deepEqual((await api(page, "GET", `${HARVESTER}/keypairs/mine`)).body.spec, key.spec);

  const template = { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineTemplate", metadata: { name: "small", namespace: "default" }, spec: { description: "a small one" } };
  const version = { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineTemplateVersion", metadata: { name: "small-v1", namespace: "default" }, spec: { templateId: "default/small", vm: { spec: machine("x").spec } } };
  // Harvester's templates have limits.
  version.spec.vm.spec.template.spec.domain.resources = { limits: { cpu: "1", memory: "64Mi" } };
  assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinetemplates`, template)).status, 201);
  assert.equal((await api(page, "POST", `${HARVESTER}/virtualmachinetemplateversions`, version)).status, 201);
  await visit(server, page, "/templates");
  await page.getByRole("row", { name: /small .*a small one.* 1 / }).waitFor();
  await page.getByRole("button", { name: "Actions of small" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /a small one/ }).waitFor({ state: "detached" });
  await page.getByRole("log").getByText("Deleted: small").waitFor();
  await page.keyboard.press("u");
  await page.getByRole("row", { name: /small .*a small one.* 1 / }).waitFor();
  await page.getByRole("log").getByText("Created again: small").waitFor();
  assert.equal((await api(page, "GET", `${HARVESTER}/virtualmachinetemplateversions/small-v1`)).status, 200);
  assert.equal((await api(page, "GET", `${HARVESTER}/virtualmachinetemplates/small`)).body.spec.defaultVersionId, "default/small-v1");
});

test("a machine whose disks were kept comes back, and several at once", async () => {
  await visit(server, page, "/machines");
  await page.getByRole("button", { name: "Actions of web" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /web/ }).waitFor({ state: "detached" });
  await page.getByRole("log").getByRole("button", { name: "Undo" }).click();
  await page.getByRole("row", { name: /web/ }).waitFor();
  await page.getByRole("checkbox", { name: "Select all that are shown" }).check();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No machines yet").waitFor();
  await page.getByRole("log").getByRole("button", { name: "Undo" }).last().click();
  for (const name of [/web/, /db/]) await page.getByRole("row", { name }).waitFor();
});

test("nothing is offered for Secrets and for data that is gone, nor without the right to create", async () => {
  const secret = { apiVersion: "v1", kind: "Secret", metadata: { name: "hidden", namespace: "default" }, stringData: { a: "b" } };
  assert.equal((await api(page, "POST", "/api/v1/namespaces/default/secrets", secret)).status, 201);
  await deleteOnPage("/api/core/v1/secrets/default/hidden", "hidden");
  assert.equal(await page.getByRole("button", { name: "Undo" }).count(), 0);
  const claim = { metadata: { name: "data", namespace: "default" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "1Gi" } } } };
  assert.equal((await api(page, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)).status, 201);
  await deleteOnPage("/api/core/v1/persistentvolumeclaims/default/data", "data");
  assert.equal(await page.getByRole("button", { name: "Undo" }).count(), 0);

  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "mop" }, username: "mop", enabled: true };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status));
  assert.equal((await api(page, "POST", "/v3/users/mop?action=setpassword", { newPassword: "mop-password-12" })).status, 200);
  const rbac = "/apis/rbac.authorization.k8s.io/v1";
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const rules = [{ apiGroups: ["harvesterhci.io"], resources: ["keypairs"], verbs: ["get", "list", "watch", "delete"] }, { apiGroups: ["kubevirt.io"], resources: ["virtualmachines"], verbs: ["list", "watch"] }];
  assert.equal((await api(page, "POST", `${rbac}/clusterroles`, { apiVersion, kind: "ClusterRole", metadata: { name: "mop" }, rules })).status, 201);
  const binding = { apiVersion, kind: "ClusterRoleBinding", metadata: { name: "mop" }, roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "mop" }, subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "mop" }] };
  assert.equal((await api(page, "POST", `${rbac}/clusterrolebindings`, binding)).status, 201);
  const mop = await open(server, chrome, { user: "mop", password: "mop-password-12" });
  await mop.getByRole("button", { name: "mop" }).waitFor();
  await visit(server, mop, "/keys");
  await mop.getByRole("button", { name: "Actions of mine" }).click();
  await mop.getByRole("menuitem", { name: "Delete" }).click();
  await mop.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await mop.getByRole("log").getByText("Deleted: mine").waitFor();
  assert.equal(await mop.getByRole("button", { name: "Undo" }).count(), 0);
  assert.deepEqual(mop.problems, []);
  await mop.context().close();
});
