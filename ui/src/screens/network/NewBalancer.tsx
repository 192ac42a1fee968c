import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../../api/http.ts";
import { BALANCER, BALANCER_POOL, pathOf } from "../../api/kinds.ts";
import { firstProject } from "../../api/session.ts";
import { useCollection } from "../../api/watch.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { NamespaceSelect } from "../../components/NamespaceSelect.tsx";
import { t } from "../../messages.ts";
import { balancerMissing, balancerObject, type BalancerDraft } from "../../model/balancer.ts";

export function NewBalancer({ onClose }: { onClose: () => void }) {
  const pools = useCollection(BALANCER_POOL);
  const [draft, setDraft] = useState<BalancerDraft>({ name: "", namespace: firstProject(), pool: "", protocol: "TCP", port: "80", backendPort: "80", label: "", check: true });
  const change = (part: Partial<BalancerDraft>) => setDraft({ ...draft, ...part });
  const submit = () => post(pathOf(BALANCER, draft.namespace), balancerObject(draft), { query: { fieldManager: FIELD_MANAGER } });
  const missing = balancerMissing(draft);
  return (
    <FormDialog title={t("Create a load balancer")} action={t("Create")} missing={missing && t(missing)} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input mono" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={draft.namespace} onChange={(namespace) => change({ namespace })} />
        </Field>
        <Field label={t("Pool of the address")}>
          <select class="input" value={draft.pool} onChange={(event) => change({ pool: event.currentTarget.value })}>
            <option value="">{t("The pool that fits best")}</option>
            {[...pools.items.keys()].sort().map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label={t("Label of the machines")} hint={t("The labels of the running machines: KEY=VALUE.")}>
          <input class="input mono" autoComplete="off" placeholder="app=web" value={draft.label} onInput={(event) => change({ label: event.currentTarget.value.trim() })} />
        </Field>
        <Field label={t("Protocol")}>
          <select class="input" value={draft.protocol} onChange={(event) => change({ protocol: event.currentTarget.value as BalancerDraft["protocol"] })}>
            <option>TCP</option>
            <option>UDP</option>
          </select>
        </Field>
        <Field label={t("Port")}>
          <input class="input mono" inputMode="numeric" value={draft.port} onInput={(event) => change({ port: event.currentTarget.value.trim() })} />
        </Field>
        <Field label={t("Port of the machines")}>
          <input class="input mono" inputMode="numeric" value={draft.backendPort} onInput={(event) => change({ backendPort: event.currentTarget.value.trim() })} />
        </Field>
      </div>
      {draft.protocol === "TCP" && (
        <label class="check">
          <input type="checkbox" checked={draft.check} onChange={(event) => change({ check: event.currentTarget.checked })} />
          {t("Leave out machines that do not answer on this port")}
        </label>
      )}
    </FormDialog>
  );
}
