import { useState } from "preact/hooks";
import { FIELD_MANAGER, mergePatch, post } from "../../api/http.ts";
import { CLUSTER_ROLE, pathOf } from "../../api/kinds.ts";
import type { ClusterRole } from "../../api/types.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { t } from "../../messages.ts";
import { invalidName } from "../../model/name.ts";
import { otherRules, PERMISSIONS, permissionsOf, roleObject, rulesOf, ruleText } from "../../model/role.ts";

/** A role as a choice of permissions; rules that belong to none are kept. */
export function EditRole({ role, onClose }: { role?: ClusterRole; onClose: () => void }) {
  const [name, setName] = useState(role?.metadata.name ?? "");
  const [chosen, setChosen] = useState(role ? permissionsOf(role) : ["see"]);
  const others = role ? otherRules(role) : [];
  const rules = rulesOf(chosen, others);
  const toggle = (id: string) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const submit = () =>
    role
      ? mergePatch(pathOf(CLUSTER_ROLE, "", name), { metadata: { resourceVersion: role.metadata.resourceVersion }, rules })
      : post(pathOf(CLUSTER_ROLE), roleObject(name, rules), { query: { fieldManager: FIELD_MANAGER } });
  const missing = invalidName(name) ?? (rules.length === 0 ? t("A permission is missing") : undefined);
  return (
    <FormDialog title={role ? t("Edit the role {name}", { name }) : t("Create a role")} action={role ? t("Save") : t("Create")} missing={missing} submit={submit} onClose={onClose}>
      {!role && (
        <Field label={t("Name")} hint={t("The role can be given in projects, on their pages.")}>
          <input class="input mono" autoComplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
      )}
      <fieldset class="plain-set stack tight">
        <legend>{t("Permissions")}</legend>
        {PERMISSIONS.map(({ id, label }) => (
          <label key={id} class="check">
            <input type="checkbox" checked={chosen.includes(id)} onChange={() => toggle(id)} />
            {t(label)}
          </label>
        ))}
      </fieldset>
      {others.length > 0 && (
        <div class="stack tight">
          <span class="muted">{t("Further rules of the role are kept:")}</span>
          {others.map((one) => (
            <span key={ruleText(one)} class="mono wrap">
              {ruleText(one)}
            </span>
          ))}
        </div>
      )}
    </FormDialog>
  );
}
