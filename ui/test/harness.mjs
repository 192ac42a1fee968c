// A server of its own in a temporary directory, and real Chromium to look at it.
//   SHEAF   the binary (default: target/debug/sheaf of the tree)
//   UI_DIR  pages to serve instead of those in the binary
//   BASE    a dashboard that runs already, with PASSWORD of admin, instead
import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const BINARY = process.env.SHEAF ?? join(root, "target/debug/sheaf");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion",
];

function commandOf(id) {
  try {
    return readFileSync(`/proc/${id}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

export class Server {
  password = process.env.PASSWORD ?? "dashboard-test-1";
  base = process.env.BASE;
  folder = null;
  process = null;

  async start() {
    if (this.base && !this.folder) return;
    this.folder ??= mkdtempSync(join(process.env.SHEAF_TEST_DIR ?? tmpdir(), "sheaf-ui-"));
    // Guests run as users of their own, who pass through it.
    chmodSync(this.folder, 0o755);
    const data = join(this.folder, "data");
    const listen = this.base ? new URL(this.base).host : "127.0.0.1:0";
    const args = ["server", "--data-dir", data, "--listen", "127.0.0.1:0", "--dashboard-listen", listen, "--admin-password", this.password, "--guest-network", "user"];
    if (process.env.UI_DIR) args.push("--ui-dir", process.env.UI_DIR);
    this.process = spawn(BINARY, args, { stdio: ["ignore", "pipe", "pipe"] });
    let log = "";
    this.process.stderr.on("data", (chunk) => (log = (log + chunk).slice(-4000)));
    this.base = await new Promise((resolve, reject) => {
      let text = "";
      this.process.stdout.on("data", (chunk) => {
        text += chunk;
        const found = /dashboard\s+(https:\S+)/.exec(text);
        if (found) resolve(found[1]);
      });
      this.process.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
    });
  }

  async stop() {
    if (!this.process) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
    this.process = null;
  }

  async remove() {
    await this.stop();
    // Guests and the storage process outlive their server.
    for (const id of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      if (this.folder && commandOf(id).includes(this.folder)) process.kill(Number(id), "SIGKILL");
    }
    if (this.folder) rmSync(this.folder, { recursive: true, force: true });
  }
}

export async function browser() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** A page of somebody who has logged in; it collects what must not happen. */
export async function open(server, chrome, { user = "admin", password = server.password, theme = "light", width = 1280, height = 800, login = true } = {}) {
  const context = await chrome.newContext({ ignoreHTTPSErrors: true, colorScheme: theme, reducedMotion: "reduce", viewport: { width, height }, acceptDownloads: true });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.problems = [];
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
  });
  page.on("console", (message) => message.text().startsWith("CSP:") && page.problems.push(message.text()));
  page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
  await page.goto(`${server.base}/`, { waitUntil: "commit" });
  if (login) await logIn(page, user, password);
  return page;
}

export async function logIn(page, user, password) {
  await page.getByLabel("User", { exact: true }).fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

export async function visit(server, page, path) {
  await page.goto(`${server.base}/dashboard${path}`, { waitUntil: "commit" });
  await page.getByRole("heading", { level: 1 }).first().waitFor();
}

/** Asks the API as the user of the page. */
export function api(page, method, path, body) {
  return page.evaluate(
    async ([method, path, body]) => {
      const csrf = /CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? "";
      const response = await fetch(path, { method, headers: { "Content-Type": "application/json", "X-API-Csrf": csrf }, body: body && JSON.stringify(body) });
      return { status: response.status, body: await response.json().catch(() => null) };
    },
    [method, path, body],
  );
}
