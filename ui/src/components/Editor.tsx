// A YAML editor. Its own chunk: only screens that edit load it.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { defaultHighlightStyle, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { nonce } from "../model/nonce.ts";

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

interface Props {
  value: string;
  label: string;
  readOnly?: boolean;
  onChange?: (text: string) => void;
}

export function Editor({ value, label, readOnly = false, onChange }: Props) {
  const element = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  /** What was typed and has not come back as a value yet: it must not replace what was typed since. */
  const told = useRef<string[]>([]);
  const changed = useRef(onChange);
  changed.current = onChange;
  useEffect(() => {
    if (!element.current) return;
    const extensions = [
      EditorView.cspNonce.of(nonce()),
      lineNumbers(), history(), drawSelection(), indentOnInput(), highlightActiveLine(), search({ top: true }),
      indentUnit.of("  "), yaml(), syntaxHighlighting(colours), syntaxHighlighting(defaultHighlightStyle, { fallback: true }), look,
      EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
      EditorState.readOnly.of(readOnly),
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
  return <div class="surface" ref={element} />;
}
