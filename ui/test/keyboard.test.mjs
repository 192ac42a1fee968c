// Tasks without a mouse, in real Chromium against the real server: keys only, no element is focused by the
// test itself.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { api, browser, open, Server } from "./harness.mjs";
import { keysOf } from "./keys.mjs";

const server = new Server();
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
let chrome;
let page;
/** What `keysOf` gives, for the page. */
let press, button, reach, use, fill, go, choose;

before(async () => {
  await server.start();
  chrome = await browser();
  page = await open(server, chrome, { login: false });
  ({ press, button, reach, use, fill, go, choose } = keysOf(page));
});
after(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

test("one logs in, and skips the navigation", async () => {
  await page.getByLabel("Password").waitFor();
  await fill("Password", server.password);
  await press("Enter");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await use(page.getByRole("link", { name: "Skip to content" }));
  assert.match(page.url(), /#main$/);
});

test("a machine is created", async () => {
  await go("Machines");
  await press("c");
  await page.getByRole("heading", { name: "Create machine" }).waitFor();
  await fill("Name", "web");
  await reach(page.getByRole("radio", { name: /^Image/ }));
  await press("ArrowRight");
  await page.getByLabel("Container image").waitFor();
  await fill("Memory in Mi", "64");
  await page.getByText("The server accepts this machine.").waitFor();
  await use(page.getByRole("checkbox", { name: "Start it" }), "Space");
  await page.getByText("The server accepts this machine.").waitFor();
  await use(page.locator(".bottom-bar").getByRole("button", { name: "Create machine" }));
  await page.getByRole("heading", { level: 1, name: "web" }).waitFor();
  assert.equal((await api(page, "GET", `${MACHINES}/web`)).body.spec.template.spec.domain.memory.guest, "64Mi");
});

test("YAML is completed, reviewed and saved, and an earlier version is restored", async () => {
  await use(page.getByRole("link", { name: "YAML", exact: true }));
  const text = page.locator(".cm-content[aria-autocomplete]");
  await reach(text);
  await press("Control+f");
  await page.keyboard.type("guest: 64Mi");
  await press("Enter");
  await press("Escape");
  await page.keyboard.type("gues");
  await page.getByRole("option", { name: /^guest/ }).waitFor();
  // The list takes no key in the first moments.
  await page.waitForTimeout(200);
  await press("Enter");
  await page.keyboard.type("96Mi");
  await page.locator(".cm-line", { hasText: /guest: 96Mi$/ }).waitFor();
  await use(button("Review changes"));
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The server accepts this.").waitFor();
  await use(dialog.getByRole("button", { name: "Save" }));
  await dialog.waitFor({ state: "detached" });
  const guest = async () => (await api(page, "GET", `${MACHINES}/web`)).body.spec.template.spec.domain.memory.guest;
  assert.equal(await guest(), "96Mi");
  await use(page.getByRole("link", { name: "History", exact: true }));
  await use(page.getByRole("link", { name: "Restore version 1" }));
  await dialog.getByText("Nothing has been changed yet.").waitFor();
  await use(dialog.getByRole("button", { name: "Save" }));
  await dialog.waitFor({ state: "detached" });
  assert.equal(await guest(), "64Mi");
});

test("a snapshot is taken", async () => {
  await use(page.getByRole("link", { name: "Snapshots", exact: true }).last());
  await use(button("Take snapshot"));
  await fill("Name", "monday");
  await press("Enter");
  await page.getByRole("row", { name: /monday/ }).waitFor();
});

test("in the list, a machine is found, cloned, deleted, and brought back", async () => {
  const spec = { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } };
  const made = await api(page, "POST", MACHINES, { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "db", namespace: "default" }, spec });
  assert.equal(made.status, 201);
  await press("g");
  await press("m");
  await page.getByRole("row", { name: /web/ }).waitFor();
  await press("/");
  await page.keyboard.type("db");
  await page.getByText("1 of 2").waitFor();
  await choose("db", "Clone");
  await fill("Name of the new machine", "db-copy");
  await press("Enter");
  await page.getByRole("log").getByText("Clone: db").waitFor();
  await reach(page.getByRole("row", { name: /db / }).first());
  await press("j");
  await press("k");
  await press("x");
  await page.getByText("1 selected").waitFor();
  await press("Escape");
  await choose("db", "Delete");
  await use(page.getByRole("dialog").getByRole("button", { name: "Delete" }));
  const own = page.getByRole("button", { name: "Actions of db", exact: true });
  await own.waitFor({ state: "detached" });
  await page.getByRole("log").getByRole("button", { name: "Undo" }).waitFor();
  await press("u");
  await own.waitFor();
});

const FORMS = [
  ["Volumes", "Create volume", { Name: "byhand", "Size in Gi": "1" }, /byhand/],
  ["SSH keys", "Add key", { Name: "mine", "Public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me" }, /mine/],
  ["Users", "Add user", { "Name to log in with": "kim", Password: "kim-password-12" }, /kim.*view/],
];
for (const [screen, opens, fields, row] of FORMS) {
  test(`${opens}: with the form of ${screen}`, async () => {
    await go(screen);
    await use(button(opens));
    for (const [label, text] of Object.entries(fields)) await fill(label, text);
    await use(page.getByRole("dialog").locator("button[type=submit]"));
    await page.getByRole("row", { name: row }).waitFor();
  });
}

test("a receiver of alarms is added on the second tab of its page", async () => {
  await go("Alarms");
  await use(page.getByRole("link", { name: "Receivers" }));
  await use(button("Add receiver"));
  await fill("Name", "ops");
  await fill("Address", "http://127.0.0.1:9/hook");
  await use(page.getByRole("dialog").getByLabel("Send a test message"), "Space");
  await use(page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }));
  await page.getByRole("row", { name: /ops Nothing sent yet/ }).waitFor();
});

test("a project is created, and its limits are set", async () => {
  await go("Projects");
  await use(button("Create project"));
  await fill("Name", "lab");
  await press("Enter");
  await page.getByRole("heading", { level: 1, name: "lab" }).waitFor();
  await use(button("Set limits"));
  await page.getByRole("dialog").waitFor();
  await reach(page.getByRole("dialog").getByLabel("Machines", { exact: true }));
  await page.keyboard.type("3");
  await press("Enter");
  await page.getByText("0 / 3").waitFor();
});

test("a host is cordoned and uncordoned, and one logs out", async () => {
  await press("g");
  await press("h");
  await page.getByRole("heading", { level: 1, name: "Hosts" }).waitFor();
  await use(page.locator(".card h2 a").first());
  await use(button("Cordon"));
  await use(page.getByRole("dialog").getByRole("button", { name: "Cordon" }));
  await use(button("Uncordon"));
  await button("Cordon").waitFor();
  await use(button("admin"));
  await reach(page.getByRole("menuitem", { name: "Log out" }), "ArrowDown");
  await press("Enter");
  await page.getByRole("button", { name: "Log in" }).waitFor();
});
