// Every screen, light and dark, wide and narrow: accessible, and without errors. Writes the pictures
// of the guides with PICTURES=FOLDER.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Replaced by the page of the only host. */
const HOST = "/hosts/HOST";
const SCREENS = ["/", "/machines", "/machines/new", "/volumes", "/volumes/default/blank", "/images", "/images?new=url", "/snapshots", "/backups", "/backups/schedules", "/templates", "/keys", "/networks", "/networks/uplinks", "/networks/pools", "/networks/balancers", "/hosts", HOST, "/alarms", "/alarms/receivers", "/tasks", "/events", "/projects", "/projects/default", "/support", "/upgrade", "/users", "/users/roles", "/users/check", "/addons", "/settings", "/api", "/api/core/v1/nodes", "/profile",
  "/machines/default/demo", "/machines/default/demo/console", "/machines/default/demo/metrics", "/machines/default/demo/disks", "/machines/default/demo/networks",
  "/machines/default/demo/snapshots", "/machines/default/demo/backups", "/machines/default/demo/events", "/machines/default/demo/history", "/machines/default/demo/yaml"];
const server = new Server();
let chrome;

before(async () => {
  await server.start();
  chrome = await browser();
  const page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const demo = {
    apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: "demo", namespace: "default" },
    spec: { runStrategy: "Halted", template: { spec: { domain: { memory: { guest: "64Mi" }, devices: {} } } } },
  };
  const made = await api(page, "POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", demo);
  assert.ok([201, 409].includes(made.status));
  const claim = { metadata: { name: "blank", namespace: "default" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", resources: { requests: { storage: "1Gi" } } } };
  assert.ok([201, 409].includes((await api(page, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)).status));
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
    await page.context().close();
    const inside = await open(server, chrome, { theme });
    await inside.getByRole("heading", { name: "Overview" }).waitFor();
    for (const path of SCREENS) {
      await visit(server, inside, path);
      await inside.waitForLoadState("domcontentloaded");
      await inside.locator(".shell").waitFor();
      await inside.waitForTimeout(400);
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
test("pictures of the guide", { skip: folder ? false : "set PICTURES to a folder" }, async () => {
  const picture = async (page, name) => page.screenshot({ path: join(folder, `${name}.png`) });
  for (const [theme, width, shots] of [
    ["light", 1280, [["/machines", "machines"], ["/machines/default/demo", "machine"], ["/machines/new", "create"]]],
    ["dark", 1280, [["/", "overview-dark"], [SCREENS.find((path) => path.startsWith("/hosts/")), "host-dark"], ["/machines/default/demo/console?view=both", "console-dark"]]],
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
