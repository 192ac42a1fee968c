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
}

export interface Answer {
  option: boolean;
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
  const needsTyping = question.type !== undefined && (question.option === undefined || option);
  const ready = !needsTyping || typed === question.type;
  const footer = (
    <>
      <Button onClick={() => answer(null)}>{t("Cancel")}</Button>
      <Button
        submit
        look="primary"
        class={question.danger ? "danger" : ""}
        disabled={ready ? false : t("Type {text} first", { text: question.type ?? "" })}
      >
        {question.action}
      </Button>
    </>
  );
  return (
    <Dialog title={question.title} onClose={() => answer(null)} onSubmit={() => ready && answer({ option })} footer={footer}>
      <div class="stack">
        {question.body}
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
