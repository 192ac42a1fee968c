import { notAllowed } from "../../actions/remove.ts";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { FIELD_MANAGER, post, remove } from "../../api/http.ts";
import { CLUSTER_ROLE_BINDING, pathOf, USER } from "../../api/kinds.ts";
import { may, user as me } from "../../api/session.ts";
import type { ClusterRoleBinding, LocalUser } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Empty } from "../../components/Empty.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { t } from "../../messages.ts";
import { perform } from "../../model/activity.ts";
import type { Filterable } from "../../model/filter.ts";

interface UserRow extends Filterable {
  user: LocalUser;
  roles: string;
}

/** The roles that this page gives, and what they are called in the API. */
const ROLES: [label: string, role: string][] = [
  ["None: roles are given in projects", ""],
  ["Read only", "view"],
  ["Operator: edit machines and volumes", "edit"],
  ["Administrator", "cluster-admin"],
];

const COLUMNS: Column<UserRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1fr)", sort: (row) => row.user.metadata.name, cell: (row) => <b>{row.user.username ?? row.user.metadata.name}</b>, phone: "first" },
  { id: "display", label: t("Full name"), width: "minmax(130px, 1fr)", cell: (row) => row.user.displayName ?? "" },
  { id: "roles", label: t("Roles in the cluster"), width: "minmax(140px, 1.2fr)", cell: (row) => row.roles || <span class="faint">{t("none")}</span>, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.user.metadata.creationTimestamp} /> },
];

const bindingOf = (name: string, role: string) => ({
  apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding",
  metadata: { name: `user-${name}-${role}` },
  roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: role },
  subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name }],
});

async function askDelete(row: UserRow, bindings: ClusterRoleBinding[]): Promise<void> {
  const { name } = row.user.metadata;
  const answer = await confirm({ title: t("Delete the user {name}?", { name }), body: <p>{t("Sessions and tokens of the user end. Machines stay.")}</p>, action: t("Delete"), danger: true });
  if (!answer) return;
  await perform(`${t("Delete")}: ${name}`, async () => {
    await remove(pathOf(USER, "", name));
    const own = bindings.filter((one) => one.metadata.name.startsWith(`user-${name}-`));
    await Promise.all(own.map((one) => remove(pathOf(CLUSTER_ROLE_BINDING, "", one.metadata.name))));
  });
}

export function UserList({ tabs }: { tabs: ComponentChildren }) {
  const users = useCollection<LocalUser>(USER);
  const bindings = useCollection<ClusterRoleBinding>(CLUSTER_ROLE_BINDING);
  const [adding, setAdding] = useState(false);
  const [password, setPassword] = useState<string | null>(null);
  const own = me.value ? me.value.name : "";
  const all = [...bindings.items.values()];
  const rows = [...users.items.values()].map((user): UserRow => {
    const { name } = user.metadata;
    const roles = all.filter((one) => one.subjects?.some((subject) => subject.kind === "User" && subject.name === name)).map((one) => one.roleRef.name).join(", ");
    return { user, roles, text: `${name} ${user.displayName ?? ""} ${roles}`.toLowerCase(), fields: { role: roles } };
  });
  const menu = (row: UserRow) => {
    const { name } = row.user.metadata;
    const items: MenuItem[] = [
      { label: t("Set password…"), icon: "key", disabled: notAllowed("patch", USER), run: () => setPassword(name) },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: name === own ? t("You cannot delete yourself") : notAllowed("delete", USER), run: () => void askDelete(row, all) },
    ];
    return <Menu label={t("Actions of {name}", { name })} items={items} />;
  };
  const add = may("create", "management.cattle.io", "users") && (
    <Button icon="plus" look="primary" onClick={() => setAdding(true)}>
      {t("Add user")}
    </Button>
  );
  return (
    <ListPage
      title={t("Users")}
      source={users}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => row.user.metadata.name}
      menu={menu}
      actions={add}
      before={tabs}
      empty={<Empty icon="users" title={t("No local users")} command="sheaf user create jane --role read-only" />}
    >
      {adding && <AddUser onClose={() => setAdding(false)} />}
      {password !== null && <SetPassword name={password} onClose={() => setPassword(null)} />}
    </ListPage>
  );
}

const setPasswordOf = (name: string, newPassword: string) => post(`/v3/users/${encodeURIComponent(name)}?action=setpassword`, { newPassword });

function AddUser({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [full, setFull] = useState("");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState("view");
  const submit = async () => {
    const body = { apiVersion: "management.cattle.io/v3", kind: "User", metadata: { name }, username: name, displayName: full, enabled: true };
    await post(pathOf(USER), body, { query: { fieldManager: FIELD_MANAGER } });
    try {
      await setPasswordOf(name, password);
    } catch (failure) {
      // A user without a password is of no use to anybody.
      await remove(pathOf(USER, "", name)).catch(() => undefined);
      throw failure;
    }
    if (role !== "") await post(pathOf(CLUSTER_ROLE_BINDING), bindingOf(name, role), { query: { fieldManager: FIELD_MANAGER } });
  };
  const missing = name === "" ? t("A name is missing") : password.length < 12 ? t("The password has at least 12 characters") : undefined;
  return (
    <FormDialog title={t("Add a user")} action={t("Add")} missing={missing} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name to log in with")}>
          <input class="input" autoComplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Full name")}>
          <input class="input" autoComplete="off" value={full} onInput={(event) => setFull(event.currentTarget.value)} />
        </Field>
      </div>
      <Field label={t("Password")} hint={t("At least 12 characters.")}>
        <input class="input" type="password" autoComplete="new-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
      </Field>
      <Field label={t("Role")} hint={t("In all projects. Roles in one project are given on its page under Projects.")}>
        <select class="input" value={role} onChange={(event) => setRole(event.currentTarget.value)}>
          {ROLES.map(([label, value]) => (
            <option key={value} value={value}>
              {t(label)}
            </option>
          ))}
        </select>
      </Field>
    </FormDialog>
  );
}

function SetPassword({ name, onClose }: { name: string; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const missing = password.length < 12 ? t("The password has at least 12 characters") : undefined;
  return (
    <FormDialog title={t("Set the password of {name}", { name })} action={t("Set password")} missing={missing} submit={() => setPasswordOf(name, password)} onClose={onClose}>
      <Field label={t("New password")} hint={t("At least 12 characters.")}>
        <input class="input" type="password" autoComplete="new-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}
