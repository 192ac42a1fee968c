// What people do with the dashboard, in real Chromium against the real server.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { api, browser, logIn, open, Server, visit } from "./harness.mjs";

const server = new Server();
let chrome;
let page;

/** A machine that never runs: its disk is missing. */
const machine = (name, labels = {}) => ({
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default", labels },
  spec: {
    runStrategy: "Halted",
    template: {
      spec: {
        domain: { cpu: { cores: 2 }, memory: { guest: "512Mi" }, devices: { disks: [{ name: "disk", disk: { bus: "virtio" } }], interfaces: [{ name: "default", masquerade: {} }] } },
        networks: [{ name: "default", pod: {} }],
        volumes: [{ name: "disk", persistentVolumeClaim: { claimName: `${name}-missing` } }],
      },
    },
  },
});
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
after(async () => {
  await chrome?.close();
  await server.remove();
});

test("a wrong password is told, and a session ends with the logout", async () => {
  const other = await open(server, chrome, { password: "wrong-password-1" });
  await other.getByText("The user or the password is wrong.").waitFor();
  await logIn(other, "admin", server.password);
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  await other.getByRole("button", { name: "admin" }).click();
  await other.getByRole("menuitem", { name: "Log out" }).click();
  await other.getByRole("button", { name: "Log in" }).waitFor();
  assert.equal((await api(other, "GET", MACHINES)).status, 403);
  await other.context().close();
});

test("a machine of somebody else appears, is filtered, selected and deleted", async () => {
  await visit(server, page, "/machines");
  const other = await open(server, chrome);
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  for (const name of ["web-1", "web-2", "db-1"]) {
    assert.equal((await api(other, "POST", MACHINES, machine(name, { tier: name.split("-")[0] }))).status, 201);
  }
  await page.getByRole("row", { name: /web-2/ }).waitFor();
  await page.getByLabel("Filter").fill("tag:tier=web");
  await page.getByText(/^2 of \d/).waitFor();
  assert.match(page.url(), /q=tag/);
  await page.getByRole("checkbox", { name: "Select all that are shown" }).check();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No machine matches").waitFor();
  await page.getByLabel("Filter").fill("");
  await page.getByRole("row", { name: /db-1/ }).waitFor();
  assert.equal(await page.getByText("selected").count(), 0);
  await other.context().close();
});

test("the page says why a machine does not start", async () => {
  await visit(server, page, "/machines/default/db-1");
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByRole("region", { name: "Findings" }).getByText(/db-1-missing/).first().waitFor();
});

test("YAML is tried, shown as a difference, and saved", async () => {
  await visit(server, page, "/machines/default/db-1/yaml");
  const line = page.locator(".cm-line", { hasText: "tier: db" });
  await line.click();
  await page.keyboard.press("End");
  await page.keyboard.type("x");
  await page.getByRole("button", { name: "Review changes" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The server accepts this.").waitFor();
  await dialog.getByText("+     tier: dbx").waitFor();
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  const label = async () => (await api(page, "GET", `${MACHINES}/db-1`)).body.metadata.labels.tier;
  assert.equal(await label(), "dbx");
  await page.reload();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByRole("menuitem", { name: /Before the save of/ }).click();
  await page.getByRole("button", { name: "Review changes" }).click();
  await dialog.getByText("-     tier: dbx").waitFor();
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(await label(), "db", "a saved change was taken back");
});

test("a field that the server does not know is refused before anything changes", async () => {
  await visit(server, page, "/machines/default/db-1/yaml");
  await page.locator(".cm-line", { hasText: /^spec:/ }).click();
  await page.keyboard.press("End");
  await page.keyboard.type("\nnonsense: 1");
  await page.getByRole("button", { name: "Review changes" }).click();
  await page.getByRole("alert").getByText(/nonsense/).first().waitFor();
});

test("texts of others are shown as texts", async () => {
  const evil = "<img src=x onerror=alert(1)>";
  const object = machine("evil");
  object.metadata.annotations = { note: evil };
  object.spec.template.spec.domain.devices.disks[0].serial = "x";
  await api(page, "POST", MACHINES, object);
  const event = {
    apiVersion: "v1", kind: "Event", metadata: { name: "evil.1", namespace: "default" }, type: "Warning", reason: "Evil", message: evil,
    involvedObject: { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", name: "evil", namespace: "default" },
    firstTimestamp: new Date().toISOString(), lastTimestamp: new Date().toISOString(), count: 1,
  };
  assert.equal((await api(page, "POST", "/api/v1/namespaces/default/events", event)).status, 201);
  await visit(server, page, "/events");
  await page.getByText(evil).waitFor();
  assert.equal(await page.locator("img[src=x]").count(), 0);
});

test("a user with fewer rights sees fewer buttons, and the server refuses the rest", async () => {
  await visit(server, page, "/users");
  await page.getByRole("button", { name: "Add user" }).click();
  await page.getByLabel("Name to log in with").fill("jane");
  await page.getByLabel("Password").fill("jane-password-1");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("row", { name: /jane.*view/ }).waitFor();
  const jane = await open(server, chrome, { user: "jane", password: "jane-password-1" });
  await jane.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Machines" }).click();
  await jane.getByRole("row", { name: /db-1/ }).waitFor();
  assert.equal(await jane.getByRole("link", { name: "Create machine" }).count(), 0);
  assert.equal(await jane.getByRole("link", { name: "Users" }).count(), 0);
  assert.equal((await api(jane, "DELETE", `${MACHINES}/db-1`)).status, 403);
  assert.equal((await api(jane, "GET", "/api/v1/secrets")).status, 403);
  await jane.context().close();
});

test("a colleague with one project sees that project, and makes machines there only", async () => {
  const project = "/api/v1/namespaces";
  assert.ok([201, 409].includes((await api(page, "POST", project, { metadata: { name: "lab" } })).status));
  const user = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "joe" }, username: "joe", enabled: true };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/management.cattle.io/v3/users", user)).status));
  assert.equal((await api(page, "POST", "/v3/users/joe?action=setpassword", { newPassword: "joe-password-1" })).status, 200);
  const binding = {
    apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", metadata: { name: "joe" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "admin" },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "joe" }],
  };
  assert.ok([201, 409].includes((await api(page, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/lab/rolebindings", binding)).status));
  const joe = await open(server, chrome, { user: "joe", password: "joe-password-1" });
  await joe.getByRole("button", { name: "joe" }).waitFor();
  await joe.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Machines" }).click();
  await joe.getByText("No machines yet").waitFor();
  const made = await api(joe, "POST", MACHINES.replace("default", "lab"), { ...machine("lab-vm"), metadata: { name: "lab-vm", namespace: "lab" } });
  assert.equal(made.status, 201);
  await joe.getByRole("row", { name: /lab-vm/ }).waitFor();
  assert.equal(await joe.getByRole("row", { name: /db-1/ }).count(), 0);
  assert.equal((await api(joe, "GET", MACHINES)).status, 403);
  assert.deepEqual(joe.problems, []);
  await joe.context().close();
});

test("the palette does what is typed, with the keyboard only", async () => {
  await visit(server, page, "/");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("console db-1");
  await page.keyboard.press("Enter");
  await page.getByText("The machine does not run").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: "Hosts" }).waitFor();
});

test("a screen is found by a part of its name, and chosen with the mouse", async () => {
  await visit(server, page, "/");
  await page.getByRole("button", { name: /Search or do/ }).click();
  await page.getByRole("combobox", { name: "Search or do…" }).fill("templ");
  await page.getByRole("option", { name: /Templates/ }).click();
  await page.getByRole("heading", { level: 1, name: "Templates" }).waitFor();
});

test("a machine is created from a container disk", async () => {
  await visit(server, page, "/machines/new");
  await page.getByLabel("Name", { exact: true }).fill("contained");
  await page.getByRole("radio", { name: /^Container disk/ }).click();
  await page.getByLabel("Container image").fill("registry.example.com/disks/small:1");
  await page.getByLabel("Memory in Mi").fill("64");
  await page.getByRole("checkbox", { name: "Start it" }).uncheck();
  await page.getByText("The server accepts this machine.").waitFor();
  await page.locator(".bottom-bar").getByRole("button", { name: "Create machine" }).click();
  await page.getByRole("heading", { level: 1, name: "contained" }).waitFor();
  const made = (await api(page, "GET", `${MACHINES}/contained`)).body;
  assert.equal(made.spec.template.spec.volumes.find((one) => one.containerDisk)?.containerDisk.image, "registry.example.com/disks/small:1");
});

test("an SSH key is added", async () => {
  await visit(server, page, "/keys");
  await page.getByRole("button", { name: "Add key" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("laptop");
  await dialog.getByLabel("Public key").fill("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me");
  await dialog.locator("button[type=submit]").click();
  await page.getByRole("row", { name: /laptop/ }).waitFor();
});

test("the page goes on after a restart of the server and after the end of a session", { skip: process.env.BASE ? "the server is not ours" : false }, async () => {
  await visit(server, page, "/machines");
  await page.getByRole("row", { name: /db-1/ }).waitFor();
  await server.stop();
  await page.getByText(/Not connected since/).waitFor();
  await server.start();
  await page.getByText(/Not connected since/).waitFor({ state: "detached" });
  const tokens = await api(page, "GET", "/v3/tokens");
  for (const token of tokens.body.data) await api(page, "DELETE", `/v3/tokens/${token.id}`);
  await page.getByLabel("Filter").fill("db");
  await page.getByRole("button", { name: "Actions of db-1" }).click();
  await page.getByRole("menuitem", { name: "Take snapshot" }).click();
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await dialog.getByLabel("Password").fill(server.password);
  await dialog.getByRole("button", { name: "Log in" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(await page.getByLabel("Filter").inputValue(), "db");
});

const guests = join(homedir(), ".cache/sheaf/guest");
const guest = existsSync(guests) ? readdirSync(guests).filter((name) => name.endsWith(".qcow2")).map((name) => join(guests, name))[0] : undefined;

test("an image is uploaded, a machine made from it, and its console answers", { skip: guest ? false : "build the guest with scripts/guest" }, async () => {
  await visit(server, page, "/images?new=upload");
  await page.getByRole("dialog").locator("input[type=file]").setInputFiles(guest);
  await page.getByLabel("Name").fill("small");
  await page.getByRole("button", { name: "Upload", exact: true }).last().click();
  await page.getByRole("row", { name: /small Ready/ }).waitFor({ timeout: 60_000 });
  await visit(server, page, "/machines/new?image=default/small");
  await page.getByLabel("Name", { exact: true }).fill("guest");
  await page.getByLabel("Disk size in Gi").fill("1");
  await page.getByLabel("Memory in Mi").fill("256");
  await page.getByLabel("Password").fill("sheaf");
  await page.getByText("The server accepts this machine.").waitFor();
  await page.locator(".bottom-bar").getByRole("button", { name: "Create machine" }).click();
  await page.getByRole("link", { name: "Console", exact: true }).click();
  await page.getByText("guest login:").first().waitFor({ timeout: 180_000 });
  await page.keyboard.type("root\n");
  await page.getByText("Password:").first().waitFor();
  await page.getByRole("button", { name: "Both" }).click();
  await page.getByRole("region", { name: "Screen of the guest" }).getByText("Connected").waitFor();
  await page.getByRole("link", { name: "Snapshots", exact: true }).last().click();
  await page.getByRole("button", { name: "Take snapshot" }).first().click();
  await page.getByRole("dialog").getByLabel("Name").fill("before");
  await page.getByRole("dialog").getByRole("button", { name: "Take snapshot" }).click();
  await page.getByRole("row", { name: /before the machine continues from here Ready/ }).waitFor({ timeout: 60_000 });
});

test("disks of a running machine are attached, grown and detached", { skip: guest ? false : "build the guest with scripts/guest" }, async () => {
  await visit(server, page, "/volumes");
  await page.getByRole("button", { name: "Create volume" }).click();
  await page.getByLabel("Name").fill("extra");
  await page.getByLabel("Size in Gi").fill("1");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("row", { name: /extra default (Not in use|Ready)/ }).waitFor();
  await visit(server, page, "/machines/default/guest/disks");
  await page.getByRole("button", { name: "Attach volume" }).click();
  await page.getByRole("dialog").getByLabel("Volume").selectOption("extra");
  await page.getByRole("dialog").getByRole("button", { name: "Attach" }).click();
  await page.getByRole("row", { name: /extra extra 1 Gi/ }).waitFor();
  await page.getByRole("button", { name: "Actions of extra" }).click();
  await page.getByRole("menuitem", { name: "Grow…" }).click();
  await page.getByLabel("New size in Gi").fill("2");
  await page.getByRole("button", { name: "Grow", exact: true }).click();
  await page.getByRole("row", { name: /extra extra 2 Gi/ }).waitFor();
  await page.getByRole("button", { name: "Actions of extra" }).click();
  await page.getByRole("menuitem", { name: "Detach" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Detach" }).click();
  await page.getByRole("row", { name: /extra/ }).waitFor({ state: "detached" });
});

test("a machine goes back to its snapshot, and is cloned", { skip: guest ? false : "build the guest with scripts/guest" }, async () => {
  await visit(server, page, "/machines/default/guest/snapshots");
  await page.getByRole("button", { name: "Actions of before" }).click();
  await page.getByRole("menuitem", { name: "Restore…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  const complete = async () => {
    const restores = await api(page, "GET", "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores");
    return restores.body.items.some((one) => one.status?.complete);
  };
  const until = Date.now() + 120_000;
  while (!(await complete())) {
    assert.ok(Date.now() < until, "the restore does not end");
    await page.waitForTimeout(200);
  }
  await visit(server, page, "/machines");
  await page.getByRole("button", { name: "Actions of guest", exact: true }).click();
  await page.getByRole("menuitem", { name: "Clone" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Clone" }).click();
  await page.getByRole("row", { name: /guest-clone/ }).waitFor({ timeout: 60_000 });
});

test("nothing broke the rules of the page", () => {
  assert.deepEqual(page.problems, []);
});
