import { useState } from "preact/hooks";
import { deleteObject } from "../../actions/remove.ts";
import { FIELD_MANAGER, post } from "../../api/http.ts";
import { CLUSTER_ROLE, pathOf, ROLE_BINDING, USER } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { ClusterRole, LocalUser, RoleBinding } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { t } from "../../messages.ts";
import { membersOf, PROJECT_ROLES, type Member } from "../../model/project.ts";
import { isProjectRole } from "../../model/role.ts";

const GROUP = "rbac.authorization.k8s.io";
const nameOf = (user: string, role: string) => `${user.toLowerCase().replace(/[^a-z0-9.-]+/g, "-")}-${role}`;

async function askRemove(project: string, member: Member): Promise<void> {
  const { name } = member.binding.metadata;
  const others = (member.binding.subjects?.length ?? 1) - 1;
  const answer = await confirm({
    title: t("Take the role {role} from {name}?", { role: member.role, name: member.name }),
    body: <p>{others > 0 ? t("The binding {binding} has {n} more members; they lose the role as well.", { binding: name, n: others }) : t("Open consoles of the member stay until they are closed.")}</p>,
    action: t("Remove"), danger: true,
  });
  if (answer) await deleteObject(ROLE_BINDING, project, name, `${member.name} (${member.role})`);
}

/** Who works in a project, and with which role. */
export function Members({ project, bindings }: { project: string; bindings: RoleBinding[] }) {
  const [adding, setAdding] = useState(false);
  const members = membersOf(bindings);
  const mayRemove = may("delete", ROLE_BINDING.group, ROLE_BINDING.plural);
  return (
    <section class="card" aria-label={t("Members")}>
      <header>
        <h2>{t("Members")}</h2>
        {may("create", ROLE_BINDING.group, ROLE_BINDING.plural) && (
          <Button small look="primary" icon="plus" onClick={() => setAdding(true)}>
            {t("Add member")}
          </Button>
        )}
      </header>
      <ul class="list">
        {members.map((one) => (
          <li key={`${one.binding.metadata.name} ${one.kind} ${one.name}`} class="row wraps">
            <b>{one.name}</b>
            {one.kind === "Group" && <span class="tag">{t("group")}</span>}
            <span class="muted grow">{one.role}</span>
            {mayRemove && <Button small look="quiet" icon="trash" label={t("Remove {name} ({role})", { name: one.name, role: one.role })} onClick={() => void askRemove(project, one)} />}
          </li>
        ))}
        {members.length === 0 && <li class="muted">{t("Only those with a role in the whole cluster work here.")}</li>}
      </ul>
      {adding && <AddMember project={project} onClose={() => setAdding(false)} />}
    </section>
  );
}

function AddMember({ project, onClose }: { project: string; onClose: () => void }) {
  const users = useCollection<LocalUser>(USER);
  const composed = [...useCollection<ClusterRole>(CLUSTER_ROLE).items.values()].filter(isProjectRole);
  const [name, setName] = useState("");
  const [role, setRole] = useState("edit");
  const body = {
    apiVersion: `${GROUP}/v1`, kind: "RoleBinding", metadata: { name: nameOf(name, role), namespace: project },
    roleRef: { apiGroup: GROUP, kind: "ClusterRole", name: role },
    subjects: [{ apiGroup: GROUP, kind: "User", name }],
  };
  const submit = () => post(pathOf(ROLE_BINDING, project), body, { query: { fieldManager: FIELD_MANAGER } });
  return (
    <FormDialog title={t("Add a member to {project}", { project })} action={t("Add")} missing={name === "" ? t("A user is missing") : undefined} submit={submit} onClose={onClose}>
      <Field label={t("User")} hint={t("A local user, or the name that your identity provider gives.")}>
        <input class="input" list="known-users" autoComplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <datalist id="known-users">
        {[...users.items.keys()].map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <Field label={t("Role")}>
        <select class="input" value={role} onChange={(event) => setRole(event.currentTarget.value)}>
          {PROJECT_ROLES.map(([value, label]) => (
            <option key={value} value={value}>
              {`${value}: ${t(label)}`}
            </option>
          ))}
          {composed.map(({ metadata }) => (
            <option key={metadata.name}>{metadata.name}</option>
          ))}
        </select>
      </Field>
      <CopyLine text={`kubectl create rolebinding ${nameOf(name || "NAME", role)} --clusterrole ${role} --user ${name || "NAME"} -n ${project}`} />
    </FormDialog>
  );
}
