import { deleteObject, notAllowed } from "../actions/remove.ts";
import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { NETWORK, pathOf } from "../api/kinds.ts";
import { firstProject, may } from "../api/session.ts";
import type { Network } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { Empty } from "../components/Empty.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { NamespaceSelect } from "../components/NamespaceSelect.tsx";
import { t } from "../messages.ts";
import type { Filterable } from "../model/filter.ts";
import { knownMachines } from "../model/machine.ts";
import { href } from "../router.ts";

interface NetworkRow extends Filterable {
  network: Network;
  bridge: string;
  machines: number;
}

function rowOf(network: Network): NetworkRow {
  const { name, namespace = "" } = network.metadata;
  let bridge = "–";
  try {
    bridge = (JSON.parse(network.spec?.config ?? "{}") as { bridge?: string }).bridge ?? "–";
  } catch {
    bridge = t("not valid JSON");
  }
  const isUsed = (wanted: string | undefined, own: string) => wanted === `${namespace}/${name}` || (wanted === name && own === namespace);
  const machines = knownMachines().filter((row) =>
    row.machine.spec?.template?.spec?.networks?.some((one) => isUsed(one.multus?.networkName, row.namespace)),
  ).length;
  return { network, bridge, machines, text: `${name} ${namespace} ${bridge}`.toLowerCase(), fields: { project: namespace, bridge } };
}

const COLUMNS: Column<NetworkRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(140px, 1.2fr)", sort: (row) => row.network.metadata.name, cell: (row) => <b>{row.network.metadata.name}</b>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.8fr)", sort: (row) => row.network.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.network.metadata.namespace}</span>, phone: "second" },
  { id: "bridge", label: t("Bridge of the host"), width: "minmax(120px, 1fr)", sort: (row) => row.bridge, cell: (row) => <span class="mono">{row.bridge}</span>, phone: "second" },
  { id: "machines", label: t("Machines"), width: "80px", right: true, sort: (row) => row.machines, cell: (row) => row.machines },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.network.metadata.creationTimestamp} /> },
];

async function askDelete(row: NetworkRow): Promise<void> {
  const { name, namespace } = row.network.metadata;
  const answer = await confirm({ title: t("Delete the network {name}?", { name }), action: t("Delete"), danger: true });
  if (answer) await deleteObject(NETWORK, namespace, name);
}

export function Networks() {
  const networks = useCollection<Network>(NETWORK);
  const [creating, setCreating] = useState(false);
  const menu = (row: NetworkRow) => {
    const { name, namespace } = row.network.metadata;
    const items: MenuItem[] = [
      { label: t("Edit as YAML"), icon: "edit", href: href(`/api/k8s.cni.cncf.io/v1/network-attachment-definitions/${namespace}/${name}`) },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: row.machines > 0 ? t("Machines use it") : notAllowed("delete", NETWORK), run: () => void askDelete(row) },
    ];
    return <Menu label={t("Actions of {name}", { name })} items={items} />;
  };
  const create = may("create", "k8s.cni.cncf.io", "network-attachment-definitions") && (
    <Button icon="plus" onClick={() => setCreating(true)}>
      {t("Create network")}
    </Button>
  );
  return (
    <ListPage
      title={t("Networks")}
      source={networks}
      rows={[...networks.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => `${row.network.metadata.namespace}/${row.network.metadata.name}`}
      menu={menu}
      actions={create}
      empty={
        <Empty icon="network" title={t("Only the guest network")} action={create} command="kubectl get network-attachment-definitions -A">
          {t("Every machine has the guest network of its host. A network here leads further interfaces of machines to a bridge of the host.")}
        </Empty>
      }
    >
      {creating && <CreateNetwork onClose={() => setCreating(false)} />}
    </ListPage>
  );
}

function CreateNetwork({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const [bridge, setBridge] = useState("");
  const submit = () => {
    const config = JSON.stringify({ cniVersion: "0.3.1", name, type: "bridge", bridge, ipam: {} });
    const body = { apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition", metadata: { name, namespace }, spec: { config } };
    return post(pathOf(NETWORK, namespace), body, { query: { fieldManager: FIELD_MANAGER } });
  };
  const missing = name === "" ? t("A name is missing") : bridge === "" ? t("A bridge is missing") : undefined;
  return (
    <FormDialog title={t("Create a network")} action={t("Create")} missing={missing} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
        <Field label={t("Bridge of the host")} hint={t("It has to exist on the hosts.")}>
          <input class="input mono" placeholder="br1" value={bridge} onInput={(event) => setBridge(event.currentTarget.value)} />
        </Field>
      </div>
    </FormDialog>
  );
}
