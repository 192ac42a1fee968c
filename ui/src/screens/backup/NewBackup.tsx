import { useState } from "preact/hooks";
import { createBackup } from "../../actions/backup.tsx";
import { stamp } from "../../actions/machine.tsx";
import { firstProject } from "../../api/session.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { NamespaceSelect } from "../../components/NamespaceSelect.tsx";
import { t } from "../../messages.ts";
import { invalidName } from "../../model/name.ts";
import { MachineSelect } from "./MachineSelect.tsx";

/** Backs a machine up: one that is chosen, or that the page is of. */
export function NewBackup({ of, onClose }: { of?: { namespace: string; name: string }; onClose: () => void }) {
  const [namespace, setNamespace] = useState(of?.namespace ?? firstProject());
  const [machine, setMachine] = useState(of?.name ?? "");
  const [time] = useState(stamp);
  const [named, setNamed] = useState<string | null>(null);
  const name = named ?? (machine ? `${machine}-${time}` : "");
  const missing = machine === "" ? t("A machine is missing") : invalidName(name);
  return (
    <FormDialog title={t("Back up a machine")} action={t("Back up")} missing={missing} submit={() => createBackup(namespace, machine, name)} onClose={onClose}>
      {!of && (
        <div class="fields">
          <Field label={t("Project")}>
            <NamespaceSelect value={namespace} onChange={(chosen) => (setNamespace(chosen), setMachine(""))} />
          </Field>
          <Field label={t("Machine")}>
            <MachineSelect namespace={namespace} value={machine} onChange={setMachine} />
          </Field>
        </div>
      )}
      <Field label={t("Name")} hint={t("All disks at one moment are sent to the backup target while the machine goes on.")}>
        <input class="input mono" autoComplete="off" value={name} onInput={(event) => setNamed(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}
