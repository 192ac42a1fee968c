import { useState } from "preact/hooks";
import { createReceiver, testReceiver } from "../../actions/receiver.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { t } from "../../messages.ts";
import { EMPTY_RECEIVER, FORMATS, receiverCommand, receiverMissing, SECRETS, type ReceiverDraft } from "../../model/receiver.ts";

const LABELS: Record<ReceiverDraft["format"], string> = {
  alertmanager: "Alertmanager's webhook",
  slack: "Slack, Mattermost, Rocket.Chat",
  ntfy: "ntfy",
};

export function NewReceiver({ onClose }: { onClose: () => void }) {
  const [draft, setDraft] = useState(EMPTY_RECEIVER);
  const [tested, setTested] = useState(true);
  const change = (part: Partial<ReceiverDraft>) => setDraft({ ...draft, ...part });
  const missing = receiverMissing(draft);
  const submit = async () => {
    await createReceiver(draft);
    if (tested) void testReceiver(draft.name);
  };
  return (
    <FormDialog title={t("Add a receiver")} action={t("Add")} missing={missing && t(missing)} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        <Field label={t("Format")}>
          <select class="input" value={draft.format} onChange={(event) => change({ format: event.currentTarget.value as ReceiverDraft["format"] })}>
            {FORMATS.map((one) => (
              <option key={one} value={one}>
                {t(LABELS[one])}
              </option>
            ))}
          </select>
        </Field>
      </div>
      <label class="check">
        <input type="checkbox" checked={draft.hidden} onChange={(event) => change({ hidden: event.currentTarget.checked, secret: draft.secret || (draft.name && `alarm-${draft.name}`) })} />
        {t("Keep the address in a Secret, since it has a token")}
      </label>
      {draft.hidden && (
        <div class="fields">
          <Field label={t("Secret")} hint={t("In {namespace}", { namespace: SECRETS })}>
            <input class="input mono" autoComplete="off" value={draft.secret} onInput={(event) => change({ secret: event.currentTarget.value })} />
          </Field>
          <Field label={t("Key")}>
            <input class="input mono" autoComplete="off" value={draft.key} onInput={(event) => change({ key: event.currentTarget.value })} />
          </Field>
        </div>
      )}
      <Field label={t("Address")} hint={draft.hidden ? t("The Secret is created with it. Leave it empty if the Secret is there already.") : t("Messages are posted to it.")}>
        <input class="input mono" autoComplete="off" spellcheck={false} value={draft.url} onInput={(event) => change({ url: event.currentTarget.value.trim() })} />
      </Field>
      <label class="check">
        <input type="checkbox" checked={draft.criticalOnly} onChange={(event) => change({ criticalOnly: event.currentTarget.checked })} />
        {t("Critical alarms only")}
      </label>
      <label class="check">
        <input type="checkbox" checked={draft.sendResolved} onChange={(event) => change({ sendResolved: event.currentTarget.checked })} />
        {t("Send the end of alarms as well")}
      </label>
      <label class="check">
        <input type="checkbox" checked={tested} onChange={(event) => setTested(event.currentTarget.checked)} />
        {t("Send a test message")}
      </label>
      <CopyLine text={receiverCommand(draft)} />
    </FormDialog>
  );
}
