import { useState } from "preact/hooks";
import { deleteObject } from "../../actions/remove.ts";
import { FIELD_MANAGER, mergePatch, post } from "../../api/http.ts";
import { pathOf, RESOURCE_QUOTA } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { ResourceQuota } from "../../api/types.ts";
import { Button } from "../../components/Button.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { Meter } from "../../components/Meter.tsx";
import { t } from "../../messages.ts";
import { fieldsOf, hardOf, LIMITS, quotaLines } from "../../model/project.ts";

/** The quota that this page writes; others are shown. */
const OWN = "project";

export function Quota({ project, quotas }: { project: string; quotas: ResourceQuota[] }) {
  const [editing, setEditing] = useState(false);
  const own = quotas.find((one) => one.metadata.name === OWN);
  const lines = quotaLines(quotas);
  const mayEdit = may(own ? "patch" : "create", "", "resourcequotas");
  return (
    <section class="card" aria-label={t("Quota")}>
      <header>
        <h2>{t("Quota")}</h2>
        {mayEdit && (
          <Button small icon="edit" onClick={() => setEditing(true)}>
            {t("Set limits")}
          </Button>
        )}
      </header>
      <div class="body stack">
        {lines.map((line) => (
          <div key={line.id} class="stack tight">
            <div class="row">
              <span class="grow">{t(line.label)}</span>
              <span class="muted">{line.text}</span>
            </div>
            <Meter value={line.used} of={line.hard} label={t(line.label)} />
          </div>
        ))}
        {lines.length === 0 && <p class="muted">{t("The project may use all that the cluster has.")}</p>}
      </div>
      {editing && <EditQuota project={project} own={own} onClose={() => setEditing(false)} />}
    </section>
  );
}

function EditQuota({ project, own, onClose }: { project: string; own: ResourceQuota | undefined; onClose: () => void }) {
  const [fields, setFields] = useState(() => fieldsOf(own));
  const wrong = LIMITS.find((one) => fields[one.id].trim() !== "" && !(Number(fields[one.id]) >= 0));
  const submit = async () => {
    const hard = hardOf(fields);
    const path = pathOf(RESOURCE_QUOTA, project, OWN);
    if (!own) {
      const body = { apiVersion: "v1", kind: "ResourceQuota", metadata: { name: OWN, namespace: project }, spec: { hard } };
      await post(pathOf(RESOURCE_QUOTA, project), body, { query: { fieldManager: FIELD_MANAGER } });
    } else if (Object.keys(hard).length === 0) {
      if (!(await deleteObject(RESOURCE_QUOTA, project, OWN, t("limits of {project}", { project })))) throw new Error(t("The limits stay."));
    } else {
      const gone = Object.fromEntries(Object.keys(own.spec?.hard ?? {}).map((id) => [id, null]));
      await mergePatch(path, { spec: { hard: { ...gone, ...hard } } });
    }
  };
  const empty = !own && Object.keys(hardOf(fields)).length === 0;
  const missing = wrong ? t("{label} is no number", { label: t(wrong.label) }) : empty ? t("No limit is given") : undefined;
  return (
    <FormDialog title={t("Limits of {project}", { project })} action={t("Save")} missing={missing} submit={submit} onClose={onClose}>
      <p class="muted">{t("An empty field is no limit. Machines that run already go on; new ones are refused beyond the limit.")}</p>
      {LIMITS.map((one) => (
        <Field key={one.id} label={one.unit ? `${t(one.label)} (${t(one.unit)})` : t(one.label)} hint={one.id}>
          <input class="input" inputMode="decimal" value={fields[one.id]} onInput={(event) => setFields({ ...fields, [one.id]: event.currentTarget.value })} />
        </Field>
      ))}
    </FormDialog>
  );
}
