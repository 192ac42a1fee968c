import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { deleteObject, notAllowed } from "../../actions/remove.ts";
import { CLUSTER_NETWORK, UPLINK, UPLINK_STATUS } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { ClusterNetwork, Uplink, UplinkStatus } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { Filterable } from "../../model/filter.ts";
import { uplinkStatus } from "../../model/network.ts";
import type { Status } from "../../model/status.ts";
import { href } from "../../router.ts";
import { NewUplink } from "./NewUplink.tsx";

interface UplinkRow extends Filterable {
  uplink: Uplink;
  status: Status;
  hosts: string;
}

function rowOf(uplink: Uplink, reports: UplinkStatus[]): UplinkRow {
  const { name } = uplink.metadata;
  const status = uplinkStatus(uplink, reports);
  const hosts = reports.filter((one) => one.status?.vlanConfig === name).map((one) => one.status?.node).sort().join(", ");
  const network = uplink.spec?.clusterNetwork ?? "";
  const nics = uplink.spec?.uplink?.nics ?? [];
  return { uplink, status, hosts, text: `${name} ${network} ${hosts} ${nics.join(" ")}`.toLowerCase(), fields: { network, status: status.word, host: hosts } };
}

const COLUMNS: Column<UplinkRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1.2fr)", sort: (row) => row.uplink.metadata.name, cell: (row) => <b>{row.uplink.metadata.name}</b>, phone: "first" },
  { id: "network", label: t("Cluster network"), width: "minmax(100px, 1fr)", sort: (row) => row.uplink.spec?.clusterNetwork ?? "", cell: (row) => row.uplink.spec?.clusterNetwork, phone: "second" },
  { id: "nics", label: t("Network cards"), width: "minmax(120px, 1.2fr)", cell: (row) => <span class="mono">{row.uplink.spec?.uplink?.nics?.join(", ")}</span> },
  { id: "mode", label: t("Bond"), width: "minmax(100px, 0.9fr)", sort: (row) => row.uplink.spec?.uplink?.bondOptions?.mode ?? "", cell: (row) => row.uplink.spec?.uplink?.bondOptions?.mode ?? "active-backup" },
  { id: "mtu", label: t("MTU"), width: "60px", right: true, cell: (row) => row.uplink.spec?.uplink?.linkAttributes?.mtu || 1500 },
  { id: "hosts", label: t("Hosts"), width: "minmax(90px, 1fr)", sort: (row) => row.hosts, cell: (row) => row.hosts || "–" },
  { id: "status", label: t("Status"), width: "minmax(120px, 1.4fr)", sort: (row) => row.status.word, cell: (row) => <StatusMark status={row.status} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.uplink.metadata.creationTimestamp} /> },
];

async function askDelete(row: UplinkRow): Promise<void> {
  const { name } = row.uplink.metadata;
  const body = <p>{t("Bond and bridge are removed from its hosts. This is refused while machines use them.")}</p>;
  if (await confirm({ title: t("Delete the uplink {name}?", { name }), body, action: t("Delete"), danger: true })) await deleteObject(UPLINK, undefined, name);
}

function menu(row: UplinkRow) {
  const { name } = row.uplink.metadata;
  const items: MenuItem[] = [
    { label: t("Edit as YAML"), icon: "edit", href: href(`/api/network.harvesterhci.io/v1beta1/vlanconfigs/${name}`) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", UPLINK), run: () => void askDelete(row) },
  ];
  return <Menu label={t("Actions of {name}", { name })} items={items} />;
}

/** Network cards of the hosts that carry the VLANs of a cluster network. */
export function UplinkList({ tabs }: { tabs: ComponentChildren }) {
  const uplinks = useCollection<Uplink>(UPLINK);
  const reports = useCollection<UplinkStatus>(UPLINK_STATUS);
  const networks = useCollection<ClusterNetwork>(CLUSTER_NETWORK);
  const [creating, setCreating] = useState(false);
  const all = [...reports.items.values()];
  const create = may("create", UPLINK.group, UPLINK.plural) && (
    <Button icon="plus" look="primary" onClick={() => setCreating(true)}>
      {t("Create uplink")}
    </Button>
  );
  return (
    <ListPage
      title={t("Uplinks")}
      source={uplinks}
      rows={[...uplinks.items.values()].map((one) => rowOf(one, all))}
      columns={COLUMNS}
      keyOf={(row) => row.uplink.metadata.name}
      menu={menu}
      actions={create}
      before={tabs}
      hint={t("Filter: name, network:lan, host:n1")}
      empty={
        <Empty icon="network" title={t("No uplinks yet")} action={create} command="kubectl get vlanconfigs">
          {t("An uplink is one or more network cards of the hosts that carry VLANs for machines. The card of the management network is never taken.")}
        </Empty>
      }
    >
      {creating && <NewUplink networks={[...networks.items.keys()]} onClose={() => setCreating(false)} />}
    </ListPage>
  );
}
