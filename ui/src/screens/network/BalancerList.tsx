import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { deleteObject, notAllowed } from "../../actions/remove.ts";
import { BALANCER } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Balancer } from "../../api/types.ts";
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
import { balancerStatus, portsText } from "../../model/balancer.ts";
import type { Filterable } from "../../model/filter.ts";
import { href } from "../../router.ts";
import { NewBalancer } from "./NewBalancer.tsx";

interface BalancerRow extends Filterable {
  balancer: Balancer;
}

function rowOf(balancer: Balancer): BalancerRow {
  const { name, namespace = "" } = balancer.metadata;
  const address = balancer.status?.address ?? "";
  return { balancer, text: `${name} ${namespace} ${address}`.toLowerCase(), fields: { project: namespace, address, status: balancerStatus(balancer).word } };
}

const COLUMNS: Column<BalancerRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1.2fr)", sort: (row) => row.balancer.metadata.name, cell: (row) => <b>{row.balancer.metadata.name}</b>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.8fr)", sort: (row) => row.balancer.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.balancer.metadata.namespace}</span> },
  { id: "address", label: t("Address"), width: "minmax(120px, 1fr)", sort: (row) => row.balancer.status?.address ?? "", cell: (row) => <span class="mono">{row.balancer.status?.address || "–"}</span>, phone: "second" },
  { id: "ports", label: t("Ports"), width: "minmax(120px, 1.2fr)", cell: (row) => <span class="mono">{portsText(row.balancer)}</span> },
  { id: "servers", label: t("Machines"), width: "80px", right: true, sort: (row) => row.balancer.status?.backendServers?.length ?? 0, cell: (row) => row.balancer.status?.backendServers?.length ?? 0 },
  { id: "status", label: t("Status"), width: "minmax(110px, 1.2fr)", sort: (row) => balancerStatus(row.balancer).word, cell: (row) => <StatusMark status={balancerStatus(row.balancer)} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.balancer.metadata.creationTimestamp} /> },
];

async function askDelete({ metadata: { name, namespace } }: Balancer): Promise<void> {
  const body = <p>{t("Its address is given back to the pool.")}</p>;
  if (await confirm({ title: t("Delete the load balancer {name}?", { name }), body, action: t("Delete"), danger: true })) await deleteObject(BALANCER, namespace, name);
}

function menu({ balancer }: BalancerRow) {
  const { name, namespace } = balancer.metadata;
  const items: MenuItem[] = [
    { label: t("Edit as YAML"), icon: "edit", href: href(`/api/loadbalancer.harvesterhci.io/v1beta1/loadbalancers/${namespace}/${name}`) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", BALANCER), run: () => void askDelete(balancer) },
  ];
  return <Menu label={t("Actions of {name}", { name })} items={items} />;
}

/** Addresses that lead to several machines. */
export function BalancerList({ tabs }: { tabs: ComponentChildren }) {
  const balancers = useCollection<Balancer>(BALANCER);
  const [creating, setCreating] = useState(false);
  const create = may("create", BALANCER.group, BALANCER.plural) && (
    <Button icon="plus" look="primary" onClick={() => setCreating(true)}>
      {t("Create load balancer")}
    </Button>
  );
  return (
    <ListPage
      title={t("Load balancers")}
      source={balancers}
      rows={[...balancers.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={({ balancer }) => `${balancer.metadata.namespace}/${balancer.metadata.name}`}
      menu={menu}
      actions={create}
      before={tabs}
      hint={t("Filter: name, address, status:ready")}
      empty={
        <Empty icon="network" title={t("No load balancers yet")} action={create} command="kubectl get loadbalancers.loadbalancer.harvesterhci.io -A">
          {t("A load balancer has an address of a pool and forwards connections to the machines that have its labels.")}
        </Empty>
      }
    >
      {creating && <NewBalancer onClose={() => setCreating(false)} />}
    </ListPage>
  );
}
