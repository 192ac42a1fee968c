// 5000 machines and 50 changes a second in real Chromium, slowed down four times, against the real server. It prints
// what it measures; its bounds only find mistakes of an order of magnitude, since a debug build on a shared machine
// says little about time.
//   SCALE_MACHINES   how many machines (default 5000)
//   SCALE_SECONDS    how long changes are made (default 20)
//   SCALE_PROFILE    a file for the CPU profile of the page
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const COUNT = Number(process.env.SCALE_MACHINES ?? 5000);
const SECONDS = Number(process.env.SCALE_SECONDS ?? 20);
const RATE = 50;
const SLOWER = 4;
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const server = new Server();
let chrome;
/** Makes machines and changes them; not slowed down. */
let other;

before(async () => {
  await server.start();
  chrome = await browser();
  other = await open(server, chrome);
  await other.getByRole("heading", { name: "Overview" }).waitFor();
});
after(async () => {
  await chrome?.close();
  await server.remove();
});

const round = (value, digits = 0) => Number(value.toFixed(digits));
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

test("machines are created through the API", async (context) => {
  // Without a list to draw beside it.
  await visit(server, other, "/profile");
  const took = await other.evaluate(
    async ([path, count]) => {
      const csrf = /CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? "";
      const begun = performance.now();
      let next = 0;
      const worker = async () => {
        for (let index = next++; index < count; index = next++) {
          const body = {
            apiVersion: "kubevirt.io/v1", kind: "VirtualMachine",
            metadata: { name: `web-${index}`, namespace: "default", labels: { tier: `tier-${index % 20}` } },
            spec: { runStrategy: "Halted", template: { spec: { domain: { cpu: { cores: 1 + (index % 4) }, memory: { guest: "512Mi" }, devices: {} } } } },
          };
          const ask = () => fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-API-Csrf": csrf }, body: JSON.stringify(body) });
          const answer = await ask().catch(() => new Promise((resolve) => setTimeout(resolve, 1000)).then(ask));
          if (answer.status !== 201 && answer.status !== 409) throw new Error(`${answer.status} ${await answer.text()}`);
        }
      };
      await Promise.all(Array.from({ length: 8 }, worker));
      return performance.now() - begun;
    },
    [MACHINES, COUNT],
  );
  context.diagnostic(`${COUNT} machines created in ${round(took / 1000, 1)} s`);
  // Their controllers have written every status, so that the list does not change by itself.
  for (let tries = 0; ; tries += 1) {
    const left = await other.evaluate(async (path) => (await (await fetch(path)).json()).items.filter((one) => !one.status?.printableStatus).length, MACHINES);
    if (left === 0) break;
    if (tries === 60) {
      context.diagnostic(`${left} machines have no status after five minutes: the list changes by itself as well`);
      break;
    }
    await other.waitForTimeout(5000);
  }
  const answer = await other.evaluate(async (path) => {
    const begun = performance.now();
    const text = await (await fetch(path)).text();
    return { took: performance.now() - begun, bytes: text.length };
  }, MACHINES);
  context.diagnostic(`the list alone: ${round(answer.bytes / 1e6, 1)} MB of JSON in ${round(answer.took)} ms`);
});

test("the list appears, is filtered, and follows changes", async (context) => {
  const page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto("about:blank");
  await page.addInitScript(() => {
    const seen = (globalThis.measured = { long: [], inputs: [] });
    new PerformanceObserver((list) => seen.long.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask" });
    const painted = (then) => requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => then(performance.now());
      port2.postMessage(0);
    });
    addEventListener("input", () => {
      const begun = performance.now();
      painted((now) => seen.inputs.push(now - begun));
    }, true);
    new MutationObserver((_, observer) => {
      if (!document.querySelector(".grid-row")) return;
      observer.disconnect();
      painted((now) => (seen.rows = now));
    }).observe(document, { childList: true, subtree: true });
  });
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.clearBrowserCache");
  await cdp.send("Emulation.setCPUThrottlingRate", { rate: SLOWER });
  // The time that the processor spends in the page's thread, slowed down: others on the same machine do not change it.
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  const profiled = process.env.SCALE_PROFILE;
  if (profiled) {
    await cdp.send("Profiler.enable");
    await cdp.send("Profiler.start");
  }
  const metrics = async () => Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value]));
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    return (await metrics()).JSHeapUsedSize / 1e6;
  };

  await page.goto(`${server.base}/dashboard/machines`, { waitUntil: "commit" });
  await page.waitForFunction(() => globalThis.measured.rows, undefined, { timeout: 120_000 });
  await page.getByText(`${COUNT.toLocaleString("en")} in all`).waitFor({ timeout: 120_000 });
  const loaded = await metrics();
  const first = await page.evaluate(([path]) => {
    const lists = performance.getEntriesByType("resource").filter((one) => new URL(one.name).pathname === path);
    return { rows: globalThis.measured.rows, from: lists[0]?.startTime, first: lists[0]?.responseStart, to: lists.at(-1)?.responseEnd };
  }, ["/apis/kubevirt.io/v1/virtualmachines"]);
  context.diagnostic(`the list is there ${round(first.rows)} ms after navigation; its requests lasted from ${round(first.from)} to ${round(first.to)} ms, the first byte came at ${round(first.first)} ms`);
  context.diagnostic(`all ${COUNT} are in the list after ${round(loaded.TaskDuration * 1000)} ms of the processor`);
  const memory = await heap();
  context.diagnostic(`JavaScript heap: ${round(memory, 1)} MB`);

  const type = async () => {
    await page.evaluate(() => (globalThis.measured.inputs = []));
    await page.getByLabel("Filter").focus();
    const begun = (await metrics()).TaskDuration;
    for (const key of "web-12") {
      await page.keyboard.press(key);
      await page.waitForTimeout(100);
    }
    for (let key = 0; key < 6; key += 1) {
      await page.keyboard.press("Backspace");
      await page.waitForTimeout(100);
    }
    const each = (((await metrics()).TaskDuration - begun) * 1000) / 12;
    const inputs = await page.evaluate(() => globalThis.measured.inputs);
    return { median: median(inputs), text: `median ${round(median(inputs))} ms, most ${round(Math.max(...inputs))} ms, ${round(each)} ms of the processor each` };
  };
  const quiet = await type();
  context.diagnostic(`a key in the filter, until it is painted: ${quiet.text}`);

  await page.evaluate(() => (globalThis.measured.long = []));
  const [before, since] = [await metrics(), Date.now()];
  const changes = other.evaluate(
    async ([path, count, rate, seconds]) => {
      const csrf = /CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? "";
      const begun = performance.now();
      let [sent, answered] = [0, 0];
      const open = new Set();
      while (performance.now() - begun < seconds * 1000) {
        while (sent < ((performance.now() - begun) / 1000) * rate && open.size < 32) {
          const name = `web-${(sent * 97) % count}`;
          sent += 1;
          const body = JSON.stringify({ metadata: { labels: { round: `round-${sent}` } } });
          const one = fetch(`${path}/${name}`, { method: "PATCH", headers: { "Content-Type": "application/merge-patch+json", "X-API-Csrf": csrf }, body })
            .then((answer) => answer.ok && (answered += 1))
            .finally(() => open.delete(one));
          open.add(one);
        }
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await Promise.all(open);
      return answered / ((performance.now() - begun) / 1000);
    },
    [MACHINES, COUNT, RATE, SECONDS],
  );
  await page.waitForTimeout(SECONDS * 500);
  const busy = await type();
  const made = await changes;
  const now = await metrics();
  const long = await page.evaluate(() => globalThis.measured.long);
  const share = ((now.TaskDuration - before.TaskDuration) * 1000) / (Date.now() - since);
  context.diagnostic(`${round(made)} changes a second for ${SECONDS} s: the page is busy ${round(share * 100)} % of the time, ${long.length} tasks above 50 ms, the longest ${round(Math.max(0, ...long))} ms`);
  context.diagnostic(`a key in the filter meanwhile: ${busy.text}`);
  const later = await heap();
  context.diagnostic(`JavaScript heap after the changes: ${round(later, 1)} MB`);
  if (profiled) writeFileSync(profiled, JSON.stringify((await cdp.send("Profiler.stop")).profile));

  assert.deepEqual(page.problems, []);
  assert.ok(await page.locator(".grid-row").count() < 120, "only rows that can be seen are in the document");
  assert.ok(later < 120, `${later} MB`);
  assert.ok(first.rows < 60_000 && quiet.median < 2000 && busy.median < 2000, "far too slow");
  const last = await api(other, "GET", `${MACHINES}/web-97`);
  assert.match(last.body.metadata.labels.round, /^round-/);
});
