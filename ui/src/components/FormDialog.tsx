import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../messages.ts";
import { Button } from "./Button.tsx";
import { Dialog } from "./Dialog.tsx";
import { ErrorNote } from "./Note.tsx";

interface Props {
  title: string;
  action: string;
  /** Why it cannot be sent yet. */
  missing?: string;
  danger?: boolean;
  wide?: boolean;
  /** Sends the form; what it throws is shown, and the form stays. */
  submit: () => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

export function FormDialog({ title, action, missing, wide, submit, onClose, children }: Props) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const send = async () => {
    if (busy || missing) return;
    setBusy(true);
    setError(null);
    try {
      await submit();
      onClose();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{t("Cancel")}</Button>
      <Button submit look="primary" disabled={missing ?? busy}>
        {action}
      </Button>
    </>
  );
  return (
    <Dialog title={title} wide={wide} onClose={onClose} onSubmit={() => void send()} footer={footer}>
      <div class="stack">
        <ErrorNote error={error} />
        {children}
      </div>
    </Dialog>
  );
}
