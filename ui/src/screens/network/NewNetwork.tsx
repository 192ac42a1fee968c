import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../../api/http.ts";
import { CLUSTER_NETWORK, NETWORK, pathOf, UPLINK } from "../../api/kinds.ts";
import { firstProject } from "../../api/session.ts";
import type { ClusterNetwork, Uplink } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { CopyLine } from "../../components/Copy.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { NamespaceSelect } from "../../components/NamespaceSelect.tsx";
import { t } from "../../messages.ts";
import { clusterNetworkNames, networkCommand, networkMissing, networkObject, type NetworkDraft, type NetworkType } from "../../model/network.ts";

const TYPES: [NetworkType, string][] = [
  ["vlan", "VLAN: the guest sends untagged frames"],
  ["trunk", "Trunk: the guest tags its frames"],
  ["untagged", "Untagged network of the uplink"],
  ["bridge", "A bridge that exists on the hosts"],
];

export function NewNetwork({ onClose }: { onClose: () => void }) {
  const networks = useCollection<ClusterNetwork>(CLUSTER_NETWORK);
  const uplinks = useCollection<Uplink>(UPLINK);
  const names = clusterNetworkNames(networks.items.values(), uplinks.items.values());
  const [own, setDraft] = useState<NetworkDraft>({ name: "", namespace: firstProject(), type: "vlan", clusterNetwork: "", vlan: "", trunk: "", bridge: "" });
  const uplinked = names.filter((name) => name !== "mgmt");
  const draft = own.clusterNetwork === "" && uplinked.length === 1 ? { ...own, clusterNetwork: uplinked[0] } : own;
  const change = (part: Partial<NetworkDraft>) => setDraft({ ...draft, ...part });
  const submit = () => post(pathOf(NETWORK, draft.namespace), networkObject(draft), { query: { fieldManager: FIELD_MANAGER } });
  const missing = networkMissing(draft);
  const command = networkCommand(draft);
  return (
    <FormDialog title={t("Create a network")} action={t("Create")} missing={missing && t(missing)} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input mono" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={draft.namespace} onChange={(namespace) => change({ namespace })} />
        </Field>
        <Field label={t("Type")}>
          <select class="input" value={draft.type} onChange={(event) => change({ type: event.currentTarget.value as NetworkType })}>
            {TYPES.map(([value, label]) => (
              <option key={value} value={value}>
                {t(label)}
              </option>
            ))}
          </select>
        </Field>
        {draft.type === "bridge" ? (
          <Field label={t("Bridge of the host")} hint={t("It has to exist on the hosts.")}>
            <input class="input mono" placeholder="br1" value={draft.bridge} onInput={(event) => change({ bridge: event.currentTarget.value })} />
          </Field>
        ) : (
          <Field label={t("Cluster network")} hint={names.length === 0 ? t("There is none with an uplink yet: create an uplink first.") : undefined}>
            <select class="input" value={draft.clusterNetwork} onChange={(event) => change({ clusterNetwork: event.currentTarget.value })}>
              <option value="">{t("Choose…")}</option>
              {names.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </Field>
        )}
        {draft.type === "vlan" && (
          <Field label={t("VLAN")} hint={t("1 to 4094, as your switch has it.")}>
            <input class="input mono" inputMode="numeric" value={draft.vlan} onInput={(event) => change({ vlan: event.currentTarget.value.trim() })} />
          </Field>
        )}
        {draft.type === "trunk" && (
          <Field label={t("VLANs")} hint={t("Numbers and ranges, for example 100-110, 5.")}>
            <input class="input mono" value={draft.trunk} onInput={(event) => change({ trunk: event.currentTarget.value })} />
          </Field>
        )}
      </div>
      {command && <CopyLine text={command} />}
    </FormDialog>
  );
}
