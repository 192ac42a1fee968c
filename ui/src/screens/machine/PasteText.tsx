import type RFB from "@novnc/novnc";
import { useState } from "preact/hooks";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Field } from "../../components/Field.tsx";
import { Meter } from "../../components/Meter.tsx";
import { t } from "../../messages.ts";
import { type } from "./keys.ts";

/** Types a text into the guest: a guest without an agent has no clipboard. */
export function PasteText({ screen, onClose }: { screen: RFB | null; onClose: () => void }) {
  const [text, setText] = useState("");
  const [progress, setProgress] = useState<number | null>(null);
  const send = async () => {
    if (!screen || progress !== null) return;
    setProgress(0);
    await type(screen, text, setProgress);
    onClose();
  };
  const footer = (
    <>
      <Button onClick={onClose}>{t("Cancel")}</Button>
      <Button submit look="primary" disabled={text === "" ? t("There is nothing to type") : false}>
        {t("Type it")}
      </Button>
    </>
  );
  return (
    <Dialog title={t("Type a text into the guest")} onClose={onClose} onSubmit={() => void send()} footer={footer}>
      <div class="stack">
        <Field label={t("Text")} hint={t("It is typed as keys, for guests with an English keyboard.")}>
          <textarea class="input" rows={6} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </Field>
        {progress !== null && <Meter value={progress} of={1} label={t("Typing")} plain />}
      </div>
    </Dialog>
  );
}
