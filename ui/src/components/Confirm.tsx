// Questions before something is destroyed or interrupted: one at a time, answered by a promise.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../messages.ts";
import { Button } from "./Button.tsx";
import { Dialog } from "./Dialog.tsx";
import { Field } from "./Field.tsx";

export interface Question {
  title: string;
  body?: ComponentChildren;
  action: string;
  danger?: boolean;
  /** What has to be typed first, where data is lost. */
  type?: string;
  /** A choice that is handed back, such as whether disks go as well. */
  option?: { label: string; initially: boolean };
  /** A text that is handed back, such as the name of what is made. */
  text?: { label: string; hint?: string; initially: string; invalid?: (text: string) => string | undefined };
  /** One of several, handed back by its value. */
  choice?: { label: string; hint?: string; options: { value: string; label: string }[] };
}

export interface Answer {
  option: boolean;
  text: string;
  choice: string;
}

const asked = signal<{ question: Question; answer: (answer: Answer | null) => void } | null>(null);

/** The answer, or null if the user thought better of it. */
export function confirm(question: Question): Promise<Answer | null> {
  return new Promise((resolve) => {
    asked.value = {
      question,
      answer: (answer) => {
        asked.value = null;
        resolve(answer);
      },
    };
  });
}

export function ConfirmDialog() {
  const current = asked.value;
  if (!current) return null;
  return <Ask key={current.question.title} question={current.question} answer={current.answer} />;
}

function Ask({ question, answer }: { question: Question; answer: (answer: Answer | null) => void }) {
  const [typed, setTyped] = useState("");
  const [option, setOption] = useState(question.option?.initially ?? false);
  const [text, setText] = useState(question.text?.initially ?? "");
  const [choice, setChoice] = useState(question.choice?.options[0]?.value ?? "");
  const invalid = question.text?.invalid?.(text);
  const needsTyping = question.type !== undefined && (question.option === undefined || option);
  const untyped = needsTyping && typed !== question.type ? t("Type {text} first", { text: question.type ?? "" }) : undefined;
  const missing = invalid ?? untyped;
  const footer = (
    <>
      <Button onClick={() => answer(null)}>{t("Cancel")}</Button>
      <Button submit look="primary" class={question.danger ? "danger" : ""} disabled={missing ?? false}>
        {question.action}
      </Button>
    </>
  );
  return (
    <Dialog title={question.title} onClose={() => answer(null)} onSubmit={() => missing === undefined && answer({ option, text, choice })} footer={footer}>
      <div class="stack">
        {question.body}
        {question.text && (
          <Field label={question.text.label} hint={question.text.hint} error={text === question.text.initially ? undefined : invalid}>
            <input class="input mono" autoComplete="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </Field>
        )}
        {question.choice && (
          <Field label={question.choice.label} hint={question.choice.hint}>
            <select class="input" value={choice} onChange={(event) => setChoice(event.currentTarget.value)}>
              {question.choice.options.map((one) => (
                <option key={one.value} value={one.value}>
                  {one.label}
                </option>
              ))}
            </select>
          </Field>
        )}
        {question.option && (
          <label class="check">
            <input type="checkbox" checked={option} onChange={(event) => setOption(event.currentTarget.checked)} />
            {question.option.label}
          </label>
        )}
        {needsTyping && (
          <Field label={t("Type {text} to confirm", { text: question.type ?? "" })}>
            <input class="input mono" autoComplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </Field>
        )}
      </div>
    </Dialog>
  );
}
