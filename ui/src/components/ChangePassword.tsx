import { useState } from "preact/hooks";
import { post } from "../api/http.ts";
import { mustChangePassword } from "../api/session.ts";
import { t } from "../messages.ts";
import { begin, update } from "../model/activity.ts";
import { Button } from "./Button.tsx";
import { Dialog } from "./Dialog.tsx";
import { Field } from "./Field.tsx";
import { ErrorNote } from "./Note.tsx";

export function ChangePassword({ onClose }: { onClose: () => void }) {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    try {
      await post("/v3/users?action=changepassword", { currentPassword: current, newPassword: next });
      update(begin(t("Password changed")), { state: "done" });
      mustChangePassword.value = false;
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{t("Cancel")}</Button>
      <Button submit look="primary">
        {t("Change password")}
      </Button>
    </>
  );
  return (
    <Dialog title={t("Change password")} onClose={onClose} onSubmit={() => void submit()} footer={footer}>
      <div class="stack">
        <ErrorNote error={error} />
        <Field label={t("Current password")}>
          <input class="input" type="password" autoComplete="current-password" value={current} onInput={(event) => setCurrent(event.currentTarget.value)} />
        </Field>
        <Field label={t("New password")} hint={t("At least 12 characters.")}>
          <input class="input" type="password" autoComplete="new-password" value={next} onInput={(event) => setNext(event.currentTarget.value)} />
        </Field>
      </div>
    </Dialog>
  );
}
