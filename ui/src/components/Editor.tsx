// A YAML editor. Its own chunk: only screens that edit load it.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { defaultHighlightStyle, HighlightStyle, indentOnInput, indentService, indentUnit, syntaxHighlighting, type IndentContext } from "@codemirror/language";
import { search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Kind } from "../api/kinds.ts";
import { t } from "../messages.ts";
import { indentAfter } from "../model/cursor.ts";
import { nonce } from "../model/nonce.ts";
import type { Problem } from "../model/yamlCheck.ts";

const look = EditorView.theme({
  "&": { fontSize: "12px", backgroundColor: "var(--surface)", color: "var(--text)", height: "100%" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "18px" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
});
const colours = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: [tags.comment], color: "var(--faint)" },
]);

/** The line that a new one is begun in, up to that place. */
function textBefore(context: IndentContext, at: number): string {
  const { text, from } = context.lineAt(at, -1);
  return text.slice(0, at - from);
}

interface Props {
  value: string;
  label: string;
  readOnly?: boolean;
  /** The kind of the object, for completion and descriptions by the server's schema. */
  kind?: Kind;
  onChange?: (text: string) => void;
}

export function Editor({ value, label, readOnly = false, kind, onChange }: Props) {
  const element = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  /** What was typed and has not come back as a value yet: it must not replace what was typed since. */
  const told = useRef<string[]>([]);
  const changed = useRef(onChange);
  changed.current = onChange;
  const schema = useRef(new Compartment());
  const [problems, setProblems] = useState<Problem[]>([]);
  useEffect(() => {
    if (!element.current) return;
    const extensions = [
      EditorView.cspNonce.of(nonce()),
      lineNumbers(), history(), drawSelection(), indentOnInput(), highlightActiveLine(), search({ top: true }),
      indentUnit.of("  "), indentService.of((context, at) => indentAfter(textBefore(context, at))), yaml(), syntaxHighlighting(colours), syntaxHighlighting(defaultHighlightStyle, { fallback: true }), look,
      EditorView.contentAttributes.of({ "aria-label": label, "aria-description": t("Escape, then Tab, leaves the text."), tabindex: "0" }),
      EditorState.readOnly.of(readOnly),
      schema.current.of([]),
      keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && update.transactions.some((one) => one.isUserEvent("input") || one.isUserEvent("delete") || one.isUserEvent("undo") || one.isUserEvent("redo") || one.isUserEvent("move"))) {
          const text = update.state.doc.toString();
          told.current.push(text);
          changed.current?.(text);
        }
      }),
    ];
    const editor = new EditorView({ parent: element.current, state: EditorState.create({ doc: value, extensions }) });
    view.current = editor;
    return () => editor.destroy();
  }, [readOnly]);
  useEffect(() => {
    const editor = view.current;
    if (!kind || !editor) return;
    let wanted = true;
    const load = async () => (await import("./editor/assist.ts")).assist(kind, readOnly, (found) => wanted && setProblems(found));
    // Without a schema this is an editor of texts.
    load().then((extension) => wanted && editor.dispatch({ effects: schema.current.reconfigure(extension) }), () => undefined);
    return () => {
      wanted = false;
    };
  }, [kind?.group, kind?.version, kind?.kind, readOnly]);
  useEffect(() => {
    const editor = view.current;
    const known = told.current.indexOf(value);
    if (known >= 0) {
      told.current.splice(0, known + 1);
      return;
    }
    told.current = [];
    if (editor && editor.state.doc.toString() !== value) {
      editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
    }
  }, [value]);
  const show = ({ from }: Problem) => {
    view.current?.dispatch({ selection: { anchor: from }, scrollIntoView: true });
    view.current?.focus();
  };
  return (
    <>
      <div class="surface" ref={element} />
      <Problems text={value} problems={problems} show={show} />
    </>
  );
}

const SHOWN = 4;

/** Violations of the schema, with their lines. The server decides when the object is tried. */
function Problems({ text, problems, show }: { text: string; problems: Problem[]; show: (one: Problem) => void }) {
  const lineOf = (one: Problem) => text.slice(0, one.from).split("\n").length;
  return (
    <div class="problems" role="status" aria-label={t("Problems")}>
      {problems.length > 0 && (
        <ul>
          {problems.slice(0, SHOWN).map((one) => (
            <li key={`${one.from} ${one.message}`}>
              <button type="button" onClick={() => show(one)}>
                {t("Line {line}: {message}", { line: lineOf(one), message: one.message })}
              </button>
            </li>
          ))}
          {problems.length > SHOWN && <li class="muted">{t("and {n} more", { n: problems.length - SHOWN })}</li>}
        </ul>
      )}
    </div>
  );
}
