import { deleteObject, notAllowed } from "../actions/remove.ts";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { MACHINE, NAMESPACE, pathOf, RESOURCE_QUOTA, ROLE_BINDING } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Machine, Namespace, ResourceQuota, RoleBinding } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu } from "../components/Menu.tsx";
import { isSystem } from "../components/NamespaceSelect.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { plural, t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import type { Filterable } from "../model/filter.ts";
import { invalidName } from "../model/name.ts";
import { membersOf, quotaLines } from "../model/project.ts";
import { phaseStatus } from "../model/status.ts";
import { href, navigate } from "../router.ts";

interface ProjectRow extends Filterable {
  project: Namespace;
  name: string;
  machines: number;
  members: string[];
  quota: string;
}

const pathTo = (name: string) => `/projects/${encodeURIComponent(name)}`;

const COLUMNS: Column<ProjectRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1fr)", sort: (row) => row.name, cell: (row) => <a class="name" tabIndex={-1} href={href(pathTo(row.name))}>{row.name}</a>, phone: "first" },
  { id: "status", label: t("Status"), width: "110px", cell: (row) => <StatusMark status={row.project.metadata.deletionTimestamp ? { tone: "busy", word: "Deleting" } : phaseStatus(row.project.status?.phase)} /> },
  { id: "machines", label: t("Machines"), width: "80px", right: true, sort: (row) => row.machines, cell: (row) => row.machines, phone: "second" },
  { id: "members", label: t("Members"), width: "minmax(140px, 1.4fr)", cell: (row) => row.members.join(", ") || <span class="faint">{t("none")}</span>, phone: "second" },
  { id: "quota", label: t("Quota"), width: "minmax(120px, 1.2fr)", cell: (row) => row.quota || <span class="faint">{t("no limit")}</span> },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.project.metadata.creationTimestamp} /> },
];

async function askCreate(): Promise<void> {
  const answer = await confirm({
    title: t("Create a project"),
    body: <p>{t("A project (namespace) holds machines with their volumes, images and networks. Members see only their projects.")}</p>,
    text: { label: t("Name"), initially: "", invalid: invalidName },
    action: t("Create"),
  });
  if (!answer) return;
  const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: answer.text } };
  const made = await perform(`${t("Create")}: ${answer.text}`, () => post(pathOf(NAMESPACE), body, { query: { fieldManager: FIELD_MANAGER } }), { command: `kubectl create namespace ${answer.text}` });
  if (made) navigate(pathTo(answer.text));
}

async function askDelete(row: ProjectRow): Promise<void> {
  const answer = await confirm({
    title: t("Delete the project {name}?", { name: row.name }),
    body: <p>{t("{machines} and all volumes, images and snapshots in it are deleted. This cannot be undone.", { machines: plural(row.machines, "machine") })}</p>,
    type: row.name, action: t("Delete"), danger: true,
  });
  if (answer) await deleteObject(NAMESPACE, "", row.name);
}

export function Projects() {
  const projects = useCollection<Namespace>(NAMESPACE);
  const machines = useCollection<Machine>(MACHINE);
  const bindings = useCollection<RoleBinding>(ROLE_BINDING);
  const quotas = useCollection<ResourceQuota>(RESOURCE_QUOTA);
  const own = <T extends { metadata: { namespace?: string } }>(all: Map<string, T>, name: string) => [...all.values()].filter((one) => one.metadata.namespace === name);
  const rows = [...projects.items.values()].filter((one) => !isSystem(one.metadata.name)).map((project): ProjectRow => {
    const { name } = project.metadata;
    const members = [...new Set(membersOf(own(bindings.items, name)).map((one) => one.name))];
    const quota = quotaLines(own(quotas.items, name)).map((line) => line.text).join(" · ");
    return { project, name, machines: own(machines.items, name).length, members, quota, text: `${name} ${members.join(" ")}`.toLowerCase(), fields: { member: members.join(" ") } };
  });
  const undeletable = (row: ProjectRow) =>
    row.name === "default" ? t("It always exists") : notAllowed("delete", NAMESPACE);
  return (
    <ListPage
      title={t("Projects")}
      source={projects}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => row.name}
      path={(row) => pathTo(row.name)}
      menu={(row) => (
        <Menu
          label={t("Actions of {name}", { name: row.name })}
          items={[
            { label: t("Members and quota"), icon: "users", href: href(pathTo(row.name)) },
            { label: t("Show machines"), icon: "monitor", href: href(`/machines?q=project:${row.name}`) },
            { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: undeletable(row), run: () => void askDelete(row) },
          ]}
        />
      )}
      actions={
        may("create", "", "namespaces") && (
          <Button icon="plus" look="primary" onClick={() => void askCreate()}>
            {t("Create project")}
          </Button>
        )
      }
      empty={<Empty icon="box" title={t("No projects yet")} command="kubectl create namespace web" />}
    />
  );
}
