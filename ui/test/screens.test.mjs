// Every screen, light and dark, wide and narrow: accessible, and without errors. Each is written to ui/screenshots, which
// is not committed. Writes the pictures of the guides with PICTURES=FOLDER.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Replaced by the page of the only host. */
const HOST = "/hosts/HOST";
const SCREENS = ["/", "/machines", "/machines/new", "/volumes", "/volumes/default/blank", "/images", "/images?new=url", "/snapshots", "/backups", "/backups/schedules", "/templates", "/keys", "/networks", "/networks/uplinks", "/networks/pools", "/networks/balancers", "/hosts", HOST, "/alarms", "/alarms/receivers", "/tasks", "/events", "/projects", "/projects/default", "/support", "/upgrade", "/users", "/users/roles", "/users/check", "/addons", "/settings", "/api", "/api/core/v1/nodes", "/profile",
  "/machines/default/demo", "/machines/default/demo/console", "/machines/default/demo/metrics", "/machines/default/demo/disks", "/machines/default/demo/networks",
  "/machines/default/demo/snapshots", "/machines/default/demo/backups", "/machines/default/demo/events", "/machines/default/demo/history", "/machines/default/demo/yaml",
  "/machines/default/web-1", "/machines/default/web-1/console", "/machines/default/lacking", "/machines/default/database/disks"];
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const HARVESTER = "/apis/harvesterhci.io/v1beta1/namespaces/default";

const harvester = (kind, name, spec) => ({ apiVersion: "harvesterhci.io/v1beta1", kind, metadata: { name, namespace: "default" }, spec });
const machine = (name, runStrategy = "Halted", more = {}) => ({
  apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default", labels: { tier: name.split("-")[0] } },
  spec: { runStrategy, template: { spec: { domain: { cpu: { cores: 2 }, memory: { guest: "64Mi" }, devices: {}, ...more.domain }, volumes: more.volumes } } },
});
const withVolume = (claimName) => ({ domain: { devices: { disks: [{ name: "root", disk: { bus: "virtio" } }] } }, volumes: [{ name: "root", persistentVolumeClaim: { claimName } }] });
const claim = (name) => ({ metadata: { name, namespace: "default" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "1Gi" } } } });

/** What the screens show; every list has something. */
const OBJECTS = [
  ["/api/v1/namespaces/default/persistentvolumeclaims", claim("blank")],
  ["/api/v1/namespaces/default/persistentvolumeclaims", claim("database")],
  [MACHINES, machine("demo")],
  [MACHINES, machine("web-1", "Always")],
  [MACHINES, machine("database", "Halted", withVolume("database"))],
  [MACHINES, machine("lacking", "Halted", withVolume("no-such-volume"))],
  ["/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots", { apiVersion: "snapshot.kubevirt.io/v1beta1", kind: "VirtualMachineSnapshot", metadata: { name: "before-update", namespace: "default" }, spec: { source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "demo" } } }],
  [`${HARVESTER}/virtualmachineimages`, harvester("VirtualMachineImage", "debian-12", { displayName: "debian-12", sourceType: "download", url: "http://127.0.0.1:9/images/debian-12-generic-amd64.qcow2" })],
  [`${HARVESTER}/keypairs`, harvester("KeyPair", "laptop", { publicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me" })],
  [`${HARVESTER}/virtualmachinetemplates`, harvester("VirtualMachineTemplate", "small", { description: "a small machine without disks" })],
  ["/api/v1/namespaces", { metadata: { name: "lab" } }],
  ["/apis/management.cattle.io/v3/users", { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name: "jane" }, username: "jane", enabled: true }],
];

const screenshots = join(dirname(fileURLToPath(import.meta.url)), "../screenshots");
const screenshot = async (page, theme, path) => {
  const name = path.replace(/^\//, "").replace(/[/?=&]+/g, "-") || "overview";
  await page.screenshot({ path: join(screenshots, theme, `${name}.png`) });
};

const server = new Server();
let chrome;

before(async () => {
  rmSync(screenshots, { recursive: true, force: true });
  for (const kind of ["light", "dark", "phone"]) mkdirSync(join(screenshots, kind), { recursive: true });
  await server.start();
  chrome = await browser();
  const page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  for (const [path, object] of OBJECTS) {
    const made = await api(page, "POST", path, object);
    assert.ok([201, 409].includes(made.status), `${path}: ${JSON.stringify(made.body)}`);
  }
  // The notice that asks for another password is above every screen until there is one.
  const password = "screens-password-1";
  if (!process.env.BASE && (await api(page, "POST", "/v3/users?action=changepassword", { currentPassword: server.password, newPassword: password })).status < 300) server.password = password;
  // What comes of them is shown as well: a machine that runs, one that does not start, a failed import.
  await api(page, "PUT", `/apis/subresources.kubevirt.io/v1${MACHINES.replace(/.*v1/, "")}/lacking/start`, {});
  await visit(server, page, "/machines");
  await page.getByRole("row", { name: /web-1 Running/ }).waitFor({ timeout: 120_000 });
  await page.getByRole("row", { name: /lacking (?!Stopped)/ }).waitFor();
  const hosts = await api(page, "GET", "/api/v1/nodes");
  SCREENS[SCREENS.indexOf(HOST)] = `/hosts/${hosts.body.items[0].metadata.name}`;
  await page.context().close();
});
after(async () => {
  await chrome?.close();
  await server.remove();
});

/** Axe runs beside the page's own scripts: the policy of the page does not let it in otherwise. */
async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.any[0]?.message ?? ""}`).slice(0, 3).join(" | ")}`);
}

for (const theme of ["light", "dark"]) {
  test(`screens are accessible in the ${theme} theme`, async () => {
    const page = await open(server, chrome, { theme, login: false });
    await page.getByRole("button", { name: "Log in" }).waitFor();
    const problems = (await violations(page)).map((one) => `login: ${one}`);
    await screenshot(page, theme, "login");
    await page.context().close();
    const inside = await open(server, chrome, { theme });
    await inside.getByRole("heading", { name: "Overview" }).waitFor();
    for (const path of SCREENS) {
      await visit(server, inside, path);
      await inside.waitForLoadState("domcontentloaded");
      await inside.locator(".shell").waitFor();
      await inside.waitForTimeout(400);
      await screenshot(inside, theme, path);
      problems.push(...(await violations(inside)).map((one) => `${path}: ${one}`));
    }
    assert.deepEqual([...problems, ...inside.problems], []);
    await inside.context().close();
  });
}

test("nothing is cut off on a phone", async () => {
  const page = await open(server, chrome, { width: 390, height: 844 });
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  for (const path of SCREENS) {
    await visit(server, page, path);
    await page.waitForTimeout(200);
    await screenshot(page, "phone", path);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    assert.equal(wider, false, path);
  }
  await page.getByRole("button", { name: "Navigation" }).click();
  await page.getByRole("link", { name: "Hosts" }).click();
  await page.getByRole("heading", { name: "Hosts" }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

const folder = process.env.PICTURES;
/** The demo machine of `make run` has a guest to log in to; that of the test has none. */
const running = process.env.BASE ? "demo" : "web-1";
test("pictures of the guide", { skip: folder ? false : "set PICTURES to a folder" }, async () => {
  const picture = async (page, name) => page.screenshot({ path: join(folder, `${name}.png`) });
  for (const [theme, width, shots] of [
    ["light", 1280, [["/machines", "machines"], [`/machines/default/${running}`, "machine"], ["/machines/new", "create"]]],
    ["dark", 1280, [["/", "overview-dark"], [SCREENS.find((path) => path.startsWith("/hosts/")), "host-dark"], [`/machines/default/${running}/console?view=both`, "console-dark"]]],
    ["light", 390, [["/machines", "machines-phone"]]],
  ]) {
    const page = await open(server, chrome, { theme, width, height: 720 });
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    for (const [path, name] of shots) {
      await visit(server, page, path);
      await page.waitForTimeout(2500);
      await picture(page, name);
    }
    await page.context().close();
  }
});
