// Receivers of alarms, in real Chromium against the real server and a webhook.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { api, browser, open, Server, visit } from "./harness.mjs";

const server = new Server();
let chrome;
let page;
/** The messages that the webhook got, and the status that it answers. */
const hook = { messages: [], answer: 200 };
const webhook = createServer((request, response) => {
  let text = "";
  request.on("data", (part) => (text += part));
  request.on("end", () => {
    hook.messages.push({ path: request.url, text });
    response.writeHead(hook.answer).end();
  });
});

before(async () => {
  await new Promise((resolve) => webhook.listen(0, "127.0.0.1", resolve));
  await server.start();
  chrome = await browser();
  page = await open(server, chrome);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});
after(async () => {
  webhook.close();
  assert.deepEqual(page?.problems ?? [], []);
  await chrome?.close();
  await server.remove();
});

const choose = async (of, item) => {
  await page.getByRole("button", { name: `Actions of ${of}` }).click();
  await page.getByRole("menuitem", { name: item }).click();
};

test("a receiver is added, tested, paused and deleted, and says why nothing arrives", async () => {
  const address = `http://127.0.0.1:${webhook.address().port}`;
  await visit(server, page, "/alarms");
  await page.getByRole("link", { name: "Receivers" }).click();
  await page.getByText("No receivers yet").waitFor();
  await page.getByRole("button", { name: "Add receiver" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("ops");
  assert.equal(await dialog.getByRole("button", { name: "Add", exact: true }).getAttribute("aria-disabled"), "true", "the address is missing");
  await dialog.getByLabel("Address", { exact: true }).fill(`${address}/hook`);
  await dialog.getByText(`sheaf alarm receiver add ops --url ${address}/hook`).waitFor();
  await dialog.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("Test message delivered to ops").waitFor({ timeout: 40_000 });
  await page.getByRole("row", { name: /ops Delivered 127\.0\.0\.1:\d+ alertmanager all/ }).waitFor();
  assert.match(hook.messages[0].path, /^\/hook$/);

  hook.answer = 404;
  await choose("ops", "Send a test message");
  await page.getByRole("log").getByText(/404/).waitFor({ timeout: 40_000 });
  await page.getByRole("row", { name: /ops Not delivered.*404/ }).waitFor();
  await choose("ops", "Pause");
  await page.getByRole("row", { name: /ops .*nothing/ }).waitFor();
  await choose("ops", "Resume");
  await page.getByRole("row", { name: /ops .* all/ }).waitFor();
  await choose("ops", "Delete");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("No receivers yet").waitFor();
});

test("an address with a token is kept in a Secret and is not shown", async () => {
  hook.answer = 200;
  await visit(server, page, "/alarms/receivers");
  await page.getByRole("button", { name: "Add receiver" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("chat");
  await dialog.getByLabel("Format").selectOption("slack");
  await dialog.getByLabel(/Keep the address in a Secret/).check();
  assert.equal(await dialog.getByLabel("Secret", { exact: true }).inputValue(), "alarm-chat");
  await dialog.getByLabel("Address", { exact: true }).fill(`http://127.0.0.1:${webhook.address().port}/services/TOKEN`);
  await dialog.getByLabel("Critical alarms only").check();
  await dialog.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("Test message delivered to chat").waitFor({ timeout: 40_000 });
  await page.getByRole("row", { name: /chat Delivered Secret alarm-chat\/url slack critical/ }).waitFor();
  assert.equal(hook.messages.at(-1).path, "/services/TOKEN");
  const stored = await api(page, "GET", "/apis/sheaf.io/v1/alarmreceivers/chat");
  assert.deepEqual(stored.body.spec.urlSecret, { name: "alarm-chat", key: "url" });
  assert.equal(stored.body.spec.url, undefined);
});
