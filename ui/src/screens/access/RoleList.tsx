import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { deleteObject, notAllowed } from "../../actions/remove.ts";
import { CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { ClusterRole, ClusterRoleBinding, RoleBinding } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { plural, t } from "../../messages.ts";
import type { Filterable } from "../../model/filter.ts";
import { isForPeople, isProjectRole, otherRules, PERMISSIONS, permissionsOf, ruleText } from "../../model/role.ts";
import { href } from "../../router.ts";
import { EditRole } from "./EditRole.tsx";

interface RoleRow extends Filterable {
  role: ClusterRole;
  bindings: number;
  summary: string;
}

const BUILT_IN: Record<string, string> = {
  "cluster-admin": "Everything, in the whole cluster",
  admin: "Administrator of a project",
  edit: "Operator: machines, volumes, images",
  view: "Read only",
};

function summaryOf(role: ClusterRole): string {
  const built = BUILT_IN[role.metadata.name];
  if (built) return t(built);
  const own = permissionsOf(role);
  const labels = PERMISSIONS.filter((one) => own.includes(one.id)).map((one) => t(one.label));
  const others = otherRules(role).length;
  return [...labels, ...(others > 0 ? [plural(others, "further rule")] : [])].join(" · ");
}

const COLUMNS: Column<RoleRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(140px, 1fr)", sort: (row) => row.role.metadata.name, cell: (row) => <b>{row.role.metadata.name}</b>, phone: "first" },
  { id: "allows", label: t("Allows"), width: "minmax(220px, 3fr)", cell: (row) => <span title={row.summary}>{row.summary}</span>, phone: "second" },
  { id: "given", label: t("Given"), width: "80px", right: true, sort: (row) => row.bindings, cell: (row) => row.bindings },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.role.metadata.creationTimestamp} /> },
];

async function askDelete(row: RoleRow): Promise<void> {
  const { name } = row.role.metadata;
  const body = row.bindings > 0 ? <p>{t("It is given {times}: those users lose its rights at once.", { times: plural(row.bindings, "time") })}</p> : undefined;
  if (await confirm({ title: t("Delete the role {name}?", { name }), body, action: t("Delete"), danger: true })) await deleteObject(CLUSTER_ROLE, undefined, name);
}

/** Roles for people: the shipped ones, and those that administrators compose. */
export function RoleList({ tabs }: { tabs: ComponentChildren }) {
  const roles = useCollection<ClusterRole>(CLUSTER_ROLE);
  const inCluster = useCollection<ClusterRoleBinding>(CLUSTER_ROLE_BINDING);
  const inProjects = useCollection<RoleBinding>(ROLE_BINDING);
  const [edited, setEdited] = useState<ClusterRole | "new" | null>(null);
  const [shown, setShown] = useState<ClusterRole | null>(null);
  const bindings = [...inCluster.items.values(), ...inProjects.items.values()];
  const rows = [...roles.items.values()].filter(isForPeople).map((role): RoleRow => {
    const { name } = role.metadata;
    const summary = summaryOf(role);
    return { role, summary, bindings: bindings.filter((one) => one.roleRef.kind === "ClusterRole" && one.roleRef.name === name).length, text: `${name} ${summary}`.toLowerCase(), fields: {} };
  });
  const menu = (row: RoleRow) => {
    const { name } = row.role.metadata;
    const shipped = name in BUILT_IN ? t("It is part of the platform") : undefined;
    const foreign = shipped ?? (isProjectRole(row.role) ? undefined : t("It was not made here: edit its YAML"));
    const items: MenuItem[] = [
      { label: t("Show rules"), icon: "file", run: () => setShown(row.role) },
      { label: t("Edit…"), icon: "edit", disabled: foreign ?? notAllowed("update", CLUSTER_ROLE), run: () => setEdited(row.role) },
      { label: t("Edit as YAML"), icon: "braces", href: href(`/api/rbac.authorization.k8s.io/v1/clusterroles/${name}`) },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: shipped ?? notAllowed("delete", CLUSTER_ROLE), run: () => void askDelete(row) },
    ];
    return <Menu label={t("Actions of {name}", { name })} items={items} />;
  };
  const add = may("create", CLUSTER_ROLE.group, CLUSTER_ROLE.plural) && (
    <Button icon="plus" look="primary" onClick={() => setEdited("new")}>
      {t("Create role")}
    </Button>
  );
  return (
    <ListPage title={t("Roles")} source={roles} rows={rows} columns={COLUMNS} keyOf={(row) => row.role.metadata.name} menu={menu} actions={add} before={tabs} empty={<Empty icon="users" title={t("No roles")} />}>
      {edited && <EditRole role={edited === "new" ? undefined : edited} onClose={() => setEdited(null)} />}
      {shown && <Rules role={shown} onClose={() => setShown(null)} />}
    </ListPage>
  );
}

function Rules({ role, onClose }: { role: ClusterRole; onClose: () => void }) {
  return (
    <Dialog title={t("Rules of {name}", { name: role.metadata.name })} wide onClose={onClose} footer={<Button onClick={onClose}>{t("Close")}</Button>}>
      <ul class="list">
        {(role.rules ?? []).map((rule) => (
          <li key={ruleText(rule)} class="mono wrap">
            {ruleText(rule)}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
