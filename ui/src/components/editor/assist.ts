// Completion, descriptions and marks for the YAML editor, from the server's schema of a kind.
// Its own chunk, loaded when an editor of a kind is shown.
import { acceptCompletion, autocompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { EditorState, Prec, StateEffect, StateField, type Extension } from "@codemirror/state";
import { Decoration, EditorView, hoverTooltip, keymap, showTooltip, ViewPlugin, type DecorationSet, type Tooltip, type ViewUpdate } from "@codemirror/view";
import type { Kind } from "../../api/kinds.ts";
import { schemasOf } from "../../api/schemas.ts";
import { t } from "../../messages.ts";
import { cursorAt, keyAt } from "../../model/cursor.ts";
import { fieldOf, fieldsOf, rootOf, schemaAt, valuesOf, type Field, type Schema, type Schemas } from "../../model/schema.ts";
import { problemsOf, type Problem } from "../../model/yamlCheck.ts";

/** A moment after the last change, so that half a word is not marked. */
const CHECK_AFTER = 300;

const look = EditorView.theme({
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line-strong)", borderRadius: "var(--radius)", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "14em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { marginLeft: "8px", fontStyle: "normal", opacity: "0.8" },
  ".cm-tooltip.cm-completionInfo, .cm-field-help": { padding: "6px 10px", maxWidth: "420px", fontFamily: "var(--sans)", whiteSpace: "pre-wrap" },
  ".cm-field-help p": { margin: "2px 0 0" },
  ".cm-problem": { textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
});

interface Known {
  root: Schema;
  schemas: Schemas;
}

/** Rows and columns of a position. */
function placeOf(state: EditorState, position: number) {
  const line = state.doc.lineAt(position);
  return { text: state.doc.toString(), row: line.number - 1, column: position - line.from, start: line.from };
}

/** The text after the name of a completed field, up to the place of its value. */
function tail(field: Field, column: number): string {
  const inner = `\n${" ".repeat(column + 2)}`;
  return { scalar: ": ", object: `:${inner}`, list: `:${inner}- ` }[field.form];
}

function complete({ root, schemas }: Known, context: CompletionContext): CompletionResult | null {
  const { text, row, column, start } = placeOf(context.state, context.pos);
  const cursor = cursorAt(text, row, column);
  const schema = cursor && schemaAt(root, cursor.path, schemas);
  if (!cursor || !schema || (cursor.typed === "" && !context.explicit && cursor.kind === "key")) return null;
  const from = start + cursor.from;
  const values = valuesOf(schema, schemas);
  if (values.length > 0) return { from, options: values.map((label) => ({ label, type: "enum" })), validFor: /^[\w./-]*$/ };
  if (cursor.kind === "value") return null;
  const after = text.slice(context.pos, text.indexOf("\n", context.pos) < 0 ? undefined : text.indexOf("\n", context.pos));
  const options = fieldsOf(schema, schemas)
    .filter((field) => !cursor.siblings.includes(field.name))
    .map((field): Completion => ({
      label: field.name, type: "property", detail: field.required ? `${field.type}, ${t("required")}` : field.type,
      info: field.description || undefined, boost: field.required ? 1 : 0,
      apply: after.trimStart().startsWith(":") ? undefined : `${field.name}${tail(field, cursor.from)}`,
    }));
  return { from, options, validFor: /^[\w./-]*$/ };
}

/** A description as nodes: texts of the server are never HTML. */
function help(field: Field, values: string[]): HTMLElement {
  const box = document.createElement("div");
  box.className = "cm-field-help";
  box.setAttribute("role", "note");
  const part = (tag: string, text: string) => text && box.appendChild(document.createElement(tag)).append(text);
  part("b", field.name);
  part("span", ` ${field.type}${field.required ? `, ${t("required")}` : ""}`);
  part("p", field.description);
  part("p", values.length > 0 ? t("One of: {values}", { values: values.join(", ") }) : "");
  return box;
}

function describe({ root, schemas }: Known, state: EditorState, position: number): Tooltip | null {
  const { text, row, column, start } = placeOf(state, position);
  const key = keyAt(text, row, column);
  const parent = key && schemaAt(root, key.path, schemas);
  const field = key && parent && fieldOf(parent, key.name, schemas);
  if (!key || !parent || !field || (field.description === "" && field.type === "object")) return null;
  const values = valuesOf(schemaAt(parent, [key.name], schemas) ?? {}, schemas);
  return { pos: start + key.from, end: start + key.to, above: true, create: () => ({ dom: help(field, values) }) };
}

const setHelp = StateEffect.define<Tooltip | null>();
/** The description that F1 shows; it goes with the next change or move. */
const shownHelp = StateField.define<Tooltip | null>({
  create: () => null,
  update: (shown, change) => {
    for (const effect of change.effects) if (effect.is(setHelp)) return effect.value;
    return change.docChanged || change.selection ? null : shown;
  },
  provide: (field) => showTooltip.from(field),
});

function helpKeys(known: Known): Extension {
  const toggle = (view: EditorView) => {
    const { state } = view;
    const tooltip = state.field(shownHelp) ? null : describe(known, state, state.selection.main.head);
    view.dispatch({ effects: setHelp.of(tooltip) });
    return true;
  };
  const close = (view: EditorView) => {
    if (!view.state.field(shownHelp)) return false;
    view.dispatch({ effects: setHelp.of(null) });
    return true;
  };
  return [shownHelp, keymap.of([{ key: "F1", run: toggle }, { key: "Escape", run: close }])];
}

const setMarks = StateEffect.define<DecorationSet>();
const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (known, change) => {
    for (const effect of change.effects) if (effect.is(setMarks)) return effect.value;
    return known.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Checks a moment after each change, marks what is wrong, and tells it. */
function checks({ root, schemas }: Known, tell: (problems: Problem[]) => void): Extension {
  class Checker {
    private timer: ReturnType<typeof setTimeout> | undefined;
    constructor(private readonly view: EditorView) {
      this.later(0);
    }
    update(change: ViewUpdate) {
      if (change.docChanged) this.later(CHECK_AFTER);
    }
    later(pause: number) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.check(), pause);
    }
    check() {
      const text = this.view.state.doc.toString();
      const found = problemsOf(text, root, schemas).filter((one) => one.to <= text.length);
      const ranges = found.map((one) => Decoration.mark({ class: "cm-problem", attributes: { title: one.message } }).range(one.from, one.to));
      this.view.dispatch({ effects: setMarks.of(Decoration.set(ranges, true)) });
      tell(found);
    }
    destroy() {
      clearTimeout(this.timer);
    }
  }
  return [marks, ViewPlugin.fromClass(Checker)];
}

/** The extension of an editor for objects of a kind; nothing if the server does not describe the kind. */
export async function assist(kind: Kind, readOnly: boolean, tell: (problems: Problem[]) => void): Promise<Extension> {
  const schemas = await schemasOf(kind);
  const root = rootOf(schemas, kind.group, kind.version, kind.kind);
  if (!root) return [];
  const known = { root, schemas };
  const reading = [look, helpKeys(known), hoverTooltip((view, position) => describe(known, view.state, position))];
  if (readOnly) return reading;
  const completion = autocompletion({ override: [(context) => complete(known, context)], icons: false });
  return [reading, completion, Prec.high(keymap.of([{ key: "Tab", run: acceptCompletion }])), checks(known, tell)];
}
