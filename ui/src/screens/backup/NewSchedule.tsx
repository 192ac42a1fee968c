import { useState } from "preact/hooks";
import { createSchedule, type ScheduleDraft } from "../../actions/schedule.tsx";
import { firstProject } from "../../api/session.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { NamespaceSelect } from "../../components/NamespaceSelect.tsx";
import { t } from "../../messages.ts";
import { invalidName } from "../../model/name.ts";
import { MachineSelect } from "./MachineSelect.tsx";

const whole = (event: { currentTarget: HTMLInputElement }) => Math.trunc(Number(event.currentTarget.value));

function missingIn(draft: ScheduleDraft): string | undefined {
  if (draft.machine === "") return t("A machine is missing");
  if (draft.cron.trim().split(/\s+/).length !== 5 && !draft.cron.startsWith("@")) return t("A schedule has five fields: minute, hour, day, month, weekday");
  if (!(draft.retain >= 2 && draft.retain <= 250)) return t("Between 2 and 250 are kept");
  if (!(draft.maxFailure >= 2 && draft.maxFailure < draft.retain)) return t("Failures are at least 2, and fewer than what is kept");
  return invalidName(draft.name);
}

/** A schedule for a machine: one that is chosen, or that the page is of. */
export function NewSchedule({ of, onClose }: { of?: { namespace: string; name: string }; onClose: () => void }) {
  const machine = of?.name ?? "";
  const [draft, setDraft] = useState<ScheduleDraft>({
    namespace: of?.namespace ?? firstProject(), name: machine && `${machine}-nightly`, machine, type: "snapshot", cron: "0 2 * * *", retain: 8, maxFailure: 4,
  });
  const change = (part: Partial<ScheduleDraft>) => setDraft({ ...draft, ...part });
  const chosen = (name: string) => change({ machine: name, name: name && `${name}-nightly` });
  return (
    <FormDialog title={t("Create a schedule")} action={t("Create")} missing={missingIn(draft)} submit={() => createSchedule(draft)} onClose={onClose}>
      <div class="fields">
        {!of && (
          <>
            <Field label={t("Project")}>
              <NamespaceSelect value={draft.namespace} onChange={(namespace) => change({ namespace, machine: "", name: "" })} />
            </Field>
            <Field label={t("Machine")}>
              <MachineSelect namespace={draft.namespace} value={draft.machine} onChange={chosen} />
            </Field>
          </>
        )}
        <Field label={t("Name")}>
          <input class="input mono" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        <Field label={t("Makes")}>
          <select class="input" value={draft.type} onChange={(event) => change({ type: event.currentTarget.value as ScheduleDraft["type"] })}>
            <option value="snapshot">{t("Snapshots in the cluster")}</option>
            <option value="backup">{t("Backups on the target")}</option>
          </select>
        </Field>
        <Field label={t("Schedule")} hint={t("Minute, hour, day, month, weekday; UTC.")}>
          <input class="input mono" autoComplete="off" value={draft.cron} onInput={(event) => change({ cron: event.currentTarget.value })} />
        </Field>
        <Field label={t("Kept")}>
          <input class="input" type="number" min={2} max={250} value={draft.retain} onInput={(event) => change({ retain: whole(event) })} />
        </Field>
        <Field label={t("Failures")} hint={t("After so many in a row it is suspended.")}>
          <input class="input" type="number" min={2} value={draft.maxFailure} onInput={(event) => change({ maxFailure: whole(event) })} />
        </Field>
      </div>
    </FormDialog>
  );
}
