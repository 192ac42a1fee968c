import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { deleteObject, notAllowed } from "../../actions/remove.ts";
import { FIELD_MANAGER, post } from "../../api/http.ts";
import { ADDRESS_POOL, NETWORK, pathOf } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { AddressPool } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Empty } from "../../components/Empty.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { Filterable } from "../../model/filter.ts";
import { leasesOf, poolMissing, poolObject, poolStatus, type PoolDraft } from "../../model/network.ts";
import { href } from "../../router.ts";

interface PoolRow extends Filterable {
  pool: AddressPool;
}

function rowOf(pool: AddressPool): PoolRow {
  const { name, namespace = "" } = pool.metadata;
  const network = pool.spec?.networkName ?? "";
  return { pool, text: `${name} ${namespace} ${network} ${pool.spec?.ipv4Config?.cidr ?? ""}`.toLowerCase(), fields: { project: namespace, network, status: poolStatus(pool).word } };
}

const COLUMNS: Column<PoolRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1.2fr)", sort: (row) => row.pool.metadata.name, cell: (row) => <b>{row.pool.metadata.name}</b>, phone: "first" },
  { id: "network", label: t("Network"), width: "minmax(120px, 1.2fr)", sort: (row) => row.pool.spec?.networkName ?? "", cell: (row) => row.pool.spec?.networkName, phone: "second" },
  { id: "cidr", label: t("Subnet"), width: "minmax(120px, 1fr)", sort: (row) => row.pool.spec?.ipv4Config?.cidr ?? "", cell: (row) => <span class="mono">{row.pool.spec?.ipv4Config?.cidr}</span> },
  { id: "used", label: t("In use"), width: "80px", right: true, sort: (row) => row.pool.status?.ipv4?.used ?? 0, cell: (row) => row.pool.status?.ipv4?.used ?? "–" },
  { id: "free", label: t("Free"), width: "80px", right: true, sort: (row) => row.pool.status?.ipv4?.available ?? 0, cell: (row) => row.pool.status?.ipv4?.available ?? "–" },
  { id: "status", label: t("Status"), width: "minmax(110px, 1.2fr)", sort: (row) => poolStatus(row.pool).word, cell: (row) => <StatusMark status={poolStatus(row.pool)} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.pool.metadata.creationTimestamp} /> },
];

async function askDelete({ metadata: { name, namespace } }: AddressPool): Promise<void> {
  if (await confirm({ title: t("Delete the address pool {name}?", { name }), action: t("Delete"), danger: true })) await deleteObject(ADDRESS_POOL, namespace, name);
}

/** Pools of addresses that the hosts give to machines by DHCP. */
export function PoolList({ tabs }: { tabs: ComponentChildren }) {
  const pools = useCollection<AddressPool>(ADDRESS_POOL);
  const [creating, setCreating] = useState(false);
  const [shown, setShown] = useState<string | null>(null);
  const menu = ({ pool }: PoolRow) => {
    const { name, namespace } = pool.metadata;
    const items: MenuItem[] = [
      { label: t("Show addresses"), icon: "network", run: () => setShown(`${namespace}/${name}`) },
      { label: t("Edit as YAML"), icon: "edit", href: href(`/api/network.harvesterhci.io/v1alpha1/ippools/${namespace}/${name}`) },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", ADDRESS_POOL), run: () => void askDelete(pool) },
    ];
    return <Menu label={t("Actions of {name}", { name })} items={items} />;
  };
  const create = may("create", ADDRESS_POOL.group, ADDRESS_POOL.plural) && (
    <Button icon="plus" look="primary" onClick={() => setCreating(true)}>
      {t("Create address pool")}
    </Button>
  );
  const open = shown === null ? undefined : pools.items.get(shown);
  return (
    <ListPage
      title={t("Addresses")}
      source={pools}
      rows={[...pools.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={({ pool }) => `${pool.metadata.namespace}/${pool.metadata.name}`}
      menu={menu}
      actions={create}
      before={tabs}
      hint={t("Filter: name, network:default/office")}
      empty={
        <Empty icon="network" title={t("No address pools yet")} action={create} command="kubectl get ippools.network.harvesterhci.io -A">
          {t("With a pool, the hosts answer DHCP requests of machines on a network. Without one, a DHCP server of the network does.")}
        </Empty>
      }
    >
      {creating && <NewPool onClose={() => setCreating(false)} />}
      {open && <Leases pool={open} onClose={() => setShown(null)} />}
    </ListPage>
  );
}

function Leases({ pool, onClose }: { pool: AddressPool; onClose: () => void }) {
  const leases = leasesOf(pool);
  return (
    <Dialog title={t("Addresses of {name}", { name: pool.metadata.name })} onClose={onClose} footer={<Button onClick={onClose}>{t("Close")}</Button>}>
      {leases.length === 0 ? (
        <p class="muted">{t("No address is allocated.")}</p>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <th>{t("Address")}</th>
              <th>{t("MAC address")}</th>
            </tr>
          </thead>
          <tbody>
            {leases.map(({ address, holder }) => (
              <tr key={address}>
                <td class="mono">{address}</td>
                <td class="mono">{holder}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Dialog>
  );
}

function NewPool({ onClose }: { onClose: () => void }) {
  const networks = useCollection(NETWORK);
  const [draft, setDraft] = useState<PoolDraft>({ name: "", network: "", cidr: "", router: "", start: "", end: "", dns: "" });
  const change = (part: Partial<PoolDraft>) => setDraft({ ...draft, ...part });
  const chosen = (network: string) => change({ network, name: draft.name || (network.split("/")[1] ?? "") });
  const submit = () => post(pathOf(ADDRESS_POOL, draft.network.split("/")[0]), poolObject(draft), { query: { fieldManager: FIELD_MANAGER } });
  const missing = poolMissing(draft);
  const address = (label: string, field: "cidr" | "router" | "start" | "end" | "dns", placeholder: string, hint?: string) => (
    <Field label={t(label)} hint={hint && t(hint)}>
      <input class="input mono" autoComplete="off" placeholder={placeholder} value={draft[field]} onInput={(event) => change({ [field]: event.currentTarget.value.trim() })} />
    </Field>
  );
  return (
    <FormDialog title={t("Create an address pool")} action={t("Create")} missing={missing && t(missing)} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Network")}>
          <select class="input" value={draft.network} onChange={(event) => chosen(event.currentTarget.value)}>
            <option value="">{t("Choose…")}</option>
            {[...networks.items.keys()].sort().map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label={t("Name")}>
          <input class="input mono" autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </Field>
        {address("Subnet", "cidr", "192.168.100.0/24", "Cannot be changed later.")}
        {address("Router", "router", "192.168.100.1")}
        {address("First address", "start", "192.168.100.50", "Empty: the whole subnet.")}
        {address("Last address", "end", "192.168.100.99")}
        {address("Name servers", "dns", "192.168.100.1", "At most three, separated by commas.")}
      </div>
    </FormDialog>
  );
}
