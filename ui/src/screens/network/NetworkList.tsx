import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { deleteObject, notAllowed } from "../../actions/remove.ts";
import { NETWORK } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Network } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { t } from "../../messages.ts";
import type { Filterable } from "../../model/filter.ts";
import { knownMachines } from "../../model/machine.ts";
import { networkFacts, type NetworkFacts } from "../../model/network.ts";
import { href } from "../../router.ts";
import { NewNetwork } from "./NewNetwork.tsx";

interface NetworkRow extends Filterable {
  network: Network;
  facts: NetworkFacts;
  machines: number;
}

const TYPES: Record<NetworkFacts["type"], string> = { vlan: "VLAN", trunk: "Trunk", untagged: "Untagged", bridge: "Bridge of the host", invalid: "not valid JSON" };

function rowOf(network: Network): NetworkRow {
  const { name, namespace = "" } = network.metadata;
  const facts = networkFacts(network);
  const isUsed = (wanted: string | undefined, own: string) => wanted === `${namespace}/${name}` || (wanted === name && own === namespace);
  const machines = knownMachines().filter((row) => row.machine.spec?.template?.spec?.networks?.some((one) => isUsed(one.multus?.networkName, row.namespace))).length;
  const { bridge, clusterNetwork, type, vlans } = facts;
  return { network, facts, machines, text: `${name} ${namespace} ${bridge} ${vlans}`.toLowerCase(), fields: { project: namespace, bridge, uplink: clusterNetwork, type, vlan: vlans } };
}

const COLUMNS: Column<NetworkRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(140px, 1.2fr)", sort: (row) => row.network.metadata.name, cell: (row) => <b>{row.network.metadata.name}</b>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.8fr)", sort: (row) => row.network.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.network.metadata.namespace}</span>, phone: "second" },
  { id: "type", label: t("Type"), width: "minmax(90px, 0.8fr)", sort: (row) => row.facts.type, cell: (row) => t(TYPES[row.facts.type]) },
  { id: "vlan", label: t("VLAN"), width: "minmax(70px, 0.8fr)", sort: (row) => Number.parseInt(row.facts.vlans, 10) || 0, cell: (row) => <span class="mono">{row.facts.vlans || "–"}</span>, phone: "second" },
  { id: "uplink", label: t("Cluster network"), width: "minmax(100px, 1fr)", sort: (row) => row.facts.clusterNetwork, cell: (row) => row.facts.clusterNetwork || "–" },
  { id: "bridge", label: t("Bridge"), width: "minmax(100px, 1fr)", sort: (row) => row.facts.bridge, cell: (row) => <span class="mono">{row.facts.bridge || "–"}</span> },
  { id: "machines", label: t("Machines"), width: "80px", right: true, sort: (row) => row.machines, cell: (row) => row.machines },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.network.metadata.creationTimestamp} /> },
];

async function askDelete(row: NetworkRow): Promise<void> {
  const { name, namespace } = row.network.metadata;
  const answer = await confirm({ title: t("Delete the network {name}?", { name }), action: t("Delete"), danger: true });
  if (answer) await deleteObject(NETWORK, namespace, name);
}

function menu(row: NetworkRow) {
  const { name, namespace } = row.network.metadata;
  const items: MenuItem[] = [
    { label: t("Edit as YAML"), icon: "edit", href: href(`/api/k8s.cni.cncf.io/v1/network-attachment-definitions/${namespace}/${name}`) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: row.machines > 0 ? t("Machines use it") : notAllowed("delete", NETWORK), run: () => void askDelete(row) },
  ];
  return <Menu label={t("Actions of {name}", { name })} items={items} />;
}

export function NetworkList({ tabs }: { tabs: ComponentChildren }) {
  const networks = useCollection<Network>(NETWORK);
  const [creating, setCreating] = useState(false);
  const create = may("create", NETWORK.group, NETWORK.plural) && (
    <Button icon="plus" look="primary" onClick={() => setCreating(true)}>
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
      before={tabs}
      hint={t("Filter: name, vlan:100, uplink:lan")}
      empty={
        <Empty icon="network" title={t("Only the guest network")} action={create} command="sheaf network create office --cluster-network lan --vlan 100">
          {t("Every machine has the guest network of its host. A network here leads further interfaces of machines to a VLAN of your switches.")}
        </Empty>
      }
    >
      {creating && <NewNetwork onClose={() => setCreating(false)} />}
    </ListPage>
  );
}
