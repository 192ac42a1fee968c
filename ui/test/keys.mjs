// Presses keys as somebody without a mouse does: the focus moves by Tab, arrows and shortcuts, never by the test.
import assert from "node:assert/strict";

export function keysOf(page) {
  const press = (key) => page.keyboard.press(key);
  const dialog = page.getByRole("dialog");
  const button = (name) => page.getByRole("button", { name, exact: true }).first();

  /** Moves the focus with a key until something has it, which then has to be visible with a focus ring. */
  async function reach(what, key = "Tab") {
    await what.waitFor();
    for (let step = 0; step < 200; step += 1) {
      const { found, inEditor } = await what.evaluate((one) => ({
        found: one === document.activeElement,
        inEditor: Boolean(document.activeElement?.closest(".cm-editor")),
      }));
      if (found) return ringed(what);
      // In a text, Tab indents; Escape leaves it.
      if (inEditor) await press("Escape");
      await press(key);
    }
    assert.fail(`the focus does not get to ${what}`);
  }

  /** The focus is inside of the window, and shown by an outline, a border or a background. */
  async function ringed(what) {
    const { shown, inside } = await what.evaluate((one) => {
      const style = getComputedStyle(one);
      const box = one.getBoundingClientRect();
      const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
      const shown = outlined || one.matches(".input, .xterm-helper-textarea, [contenteditable], [role=menuitem]");
      return { shown, inside: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth };
    });
    assert.ok(shown, `the focus of ${what} cannot be seen`);
    assert.ok(inside, `${what} has the focus and is outside of the window`);
  }

  async function use(what, key = "Enter") {
    await reach(what);
    await press(key);
  }

  /** A field with a label, of the dialog if one is open. */
  const field = async (label) => ((await dialog.count()) > 0 ? dialog : page).getByLabel(label, { exact: true }).first();

  async function fill(label, text) {
    await reach(await field(label));
    await press("Control+a");
    await page.keyboard.type(text);
  }

  /** Chooses in a list of the browser by its arrows. */
  async function pick(label, option) {
    const list = await field(label);
    await reach(list);
    await press("Home");
    for (let step = 0; step < 100; step += 1) {
      const shown = await list.evaluate((one) => one.selectedOptions[0]?.textContent ?? "");
      if (typeof option === "string" ? shown === option : option.test(shown)) return;
      await press("ArrowDown");
    }
    assert.fail(`${label} has no ${option}`);
  }

  /** Chooses a file; the dialog of the operating system is not ours. */
  async function chooseFile(label, file) {
    await reach(await field(label));
    const [chooser] = await Promise.all([page.waitForEvent("filechooser"), press("Enter")]);
    await chooser.setFiles(file);
  }

  /** Sends the form of the dialog, and waits until it has closed. */
  async function submit(name) {
    await use(dialog.getByRole("button", { name, exact: true }));
    await dialog.waitFor({ state: "detached" });
  }

  /** Opens a screen by its name. */
  async function go(name) {
    await press("Control+k");
    await dialog.waitFor();
    await page.keyboard.type(name);
    await press("Enter");
    await page.getByRole("heading", { level: 1, name }).waitFor();
  }

  /** Chooses from the menu of something. */
  async function choose(of, item) {
    await use(button(`Actions of ${of}`));
    await reach(page.getByRole("menuitem", { name: item, exact: true }), "ArrowDown");
    await press("Enter");
  }

  return { press, dialog, button, reach, use, fill, pick, chooseFile, submit, go, choose };
}
