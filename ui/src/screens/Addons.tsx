import { notAllowed } from "../actions/remove.ts";
import { mergePatch } from "../api/http.ts";
import { ADDON, kubectlName, pathOf } from "../api/kinds.ts";
import type { Addon } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { confirm } from "../components/Confirm.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { addonNote, addonStatus } from "../model/addon.ts";
import { perform } from "../model/activity.ts";
import type { Filterable } from "../model/filter.ts";
import { href } from "../router.ts";

interface AddonRow extends Filterable {
  addon: Addon;
}

function rowOf(addon: Addon): AddonRow {
  const { name, namespace = "" } = addon.metadata;
  return { addon, text: `${name} ${namespace}`.toLowerCase(), fields: { status: addonStatus(addon).word, project: namespace } };
}

const COLUMNS: Column<AddonRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(150px, 1fr)", sort: (row) => row.addon.metadata.name, cell: (row) => <b>{row.addon.metadata.name}</b>, phone: "first" },
  { id: "status", label: t("Status"), width: "minmax(110px, 0.8fr)", sort: (row) => addonStatus(row.addon).word, cell: (row) => <StatusMark status={addonStatus(row.addon)} />, phone: "second" },
  { id: "note", label: t("Description"), width: "minmax(220px, 3fr)", cell: (row) => <span class="muted" title={addonNote(row.addon)}>{addonNote(row.addon)}</span> },
  { id: "project", label: t("Project"), width: "minmax(120px, 1fr)", sort: (row) => row.addon.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.addon.metadata.namespace}</span> },
];

function set(addon: Addon, enabled: boolean): Promise<boolean> {
  const { name, namespace = "" } = addon.metadata;
  const patch = { spec: { enabled } };
  const command = `kubectl patch ${kubectlName(ADDON)} ${name} -n ${namespace} --type merge -p '${JSON.stringify(patch)}'`;
  return perform(`${enabled ? t("Enable") : t("Disable")}: ${name}`, () => mergePatch(pathOf(ADDON, namespace, name), patch), { command });
}

async function askDisable(addon: Addon): Promise<void> {
  if (await confirm({ title: t("Disable the add-on {name}?", { name: addon.metadata.name }), action: t("Disable") })) await set(addon, false);
}

function menu({ addon }: AddonRow) {
  const { name, namespace } = addon.metadata;
  const refusal = notAllowed("patch", ADDON);
  const items: MenuItem[] = [
    addon.spec?.enabled
      ? { label: t("Disable"), icon: "pause", disabled: refusal, run: () => void askDisable(addon) }
      : { label: t("Enable"), icon: "play", disabled: refusal, run: () => void set(addon, true) },
    { label: t("Edit as YAML"), icon: "edit", href: href(`/api/harvesterhci.io/v1beta1/addons/${namespace}/${name}`) },
  ];
  return <Menu label={t("Actions of {name}", { name })} items={items} />;
}

/** Optional features; those that this version does not have say so when they are enabled. */
export function Addons() {
  const addons = useCollection<Addon>(ADDON);
  return (
    <ListPage
      title={t("Add-ons")}
      source={addons}
      rows={[...addons.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={({ addon }) => `${addon.metadata.namespace}/${addon.metadata.name}`}
      menu={menu}
      hint={t("Filter: name, status:enabled")}
      empty={<Empty icon="puzzle" title={t("No add-ons")} command="kubectl get addons.harvesterhci.io -A" />}
    />
  );
}
