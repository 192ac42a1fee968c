import { useState } from "preact/hooks";
import { ApiError, FIELD_MANAGER, post } from "../../api/http.ts";
import { CLUSTER_NETWORK, HOST, LINK_MONITOR, pathOf, UPLINK } from "../../api/kinds.ts";
import type { LinkMonitor } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { t } from "../../messages.ts";
import { BOND_MODES, uplinkMissing, uplinkObject, type UplinkDraft } from "../../model/network.ts";

/** The cluster network is created with its first uplink. */
async function create(draft: UplinkDraft): Promise<void> {
  const query = { fieldManager: FIELD_MANAGER };
  const network = { apiVersion: "network.harvesterhci.io/v1beta1", kind: "ClusterNetwork", metadata: { name: draft.clusterNetwork } };
  await post(pathOf(CLUSTER_NETWORK), network, { query }).catch((failure: unknown) => {
    if (!(failure instanceof ApiError && failure.status === 409)) throw failure;
  });
  await post(pathOf(UPLINK), uplinkObject(draft), { query });
}

export function NewUplink({ networks, onClose }: { networks: string[]; onClose: () => void }) {
  const hosts = useCollection(HOST);
  const links = useCollection<LinkMonitor>(LINK_MONITOR);
  const [draft, setDraft] = useState<UplinkDraft>({ clusterNetwork: "", name: "", nics: "", mode: "active-backup", mtu: "", host: "" });
  const change = (part: Partial<UplinkDraft>) => setDraft({ ...draft, ...part });
  const byHost = links.items.get("nic")?.status?.linkStatus ?? {};
  const cards = Object.entries(byHost).filter(([host]) => draft.host === "" || host === draft.host).flatMap(([host, list]) => list.map((link) => `${host}: ${link.name} (${link.state ?? "unknown"})`));
  const missing = uplinkMissing(draft);
  return (
    <FormDialog title={t("Create an uplink")} action={t("Create")} missing={missing && t(missing)} submit={() => create(draft)} onClose={onClose}>
      <p class="muted">{t("Every host tries the change and rolls it back by itself if it loses its connection to the others.")}</p>
      <div class="fields">
        <Field label={t("Cluster network")} hint={t("At most 12 characters; a new name creates it.")}>
          <input class="input mono" list="known-networks" autoComplete="off" value={draft.clusterNetwork} onInput={(event) => change({ clusterNetwork: event.currentTarget.value, name: event.currentTarget.value && `${event.currentTarget.value}-uplink` })} />
        </Field>
        <Field label={t("Name")}>
          <input class="input mono" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        <Field label={t("Host")}>
          <select class="input" value={draft.host} onChange={(event) => change({ host: event.currentTarget.value })}>
            <option value="">{t("All hosts")}</option>
            {[...hosts.items.keys()].sort().map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label={t("Network cards")} hint={cards.length > 0 ? cards.join(", ") : t("Names, separated by commas.")}>
          <input class="input mono" placeholder="enp3s0, enp4s0" value={draft.nics} onInput={(event) => change({ nics: event.currentTarget.value })} />
        </Field>
        <Field label={t("Bond")} hint={t("802.3ad needs a switch with LACP.")}>
          <select class="input" value={draft.mode} onChange={(event) => change({ mode: event.currentTarget.value })}>
            {BOND_MODES.map((mode) => (
              <option key={mode}>{mode}</option>
            ))}
          </select>
        </Field>
        <Field label={t("MTU")} hint={t("Empty: 1500.")}>
          <input class="input mono" inputMode="numeric" value={draft.mtu} onInput={(event) => change({ mtu: event.currentTarget.value.trim() })} />
        </Field>
      </div>
      <datalist id="known-networks">
        {networks.filter((name) => name !== "mgmt").map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </FormDialog>
  );
}
