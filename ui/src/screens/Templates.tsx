import { deleteObject, notAllowed } from "../actions/remove.ts";
import { MACHINE, TEMPLATE, TEMPLATE_VERSION } from "../api/kinds.ts";
import type { Machine, Template, TemplateVersion } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Empty } from "../components/Empty.tsx";
import { confirm } from "../components/Confirm.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import type { Filterable } from "../model/filter.ts";
import { href } from "../router.ts";

interface TemplateRow extends Filterable {
  template: Template;
  versions: number;
  standard: string;
  cpus: string;
  memory: string;
}

function rowsOf(templates: Iterable<Template>, versions: TemplateVersion[]): TemplateRow[] {
  return [...templates].map((template) => {
    const { name, namespace = "" } = template.metadata;
    const own = versions.filter((version) => version.spec?.templateId === `${namespace}/${name}`);
    const standard = (template.spec?.defaultVersionId ?? "").split("/").pop() ?? "";
    const chosen = own.find((version) => version.metadata.name === standard) ?? own[0];
    const vm = chosen?.spec?.vm as Pick<Machine, "spec"> | undefined;
    const domain = vm?.spec?.template?.spec?.domain;
    return {
      template,
      versions: own.length,
      standard: chosen?.metadata.name ?? "",
      cpus: domain?.cpu ? String((domain.cpu.sockets ?? 1) * (domain.cpu.cores ?? 1) * (domain.cpu.threads ?? 1)) : "–",
      memory: String(domain?.memory?.guest ?? (domain?.resources?.limits as Record<string, string> | undefined)?.memory ?? "–"),
      text: `${name} ${namespace} ${template.spec?.description ?? ""}`.toLowerCase(),
      fields: { project: namespace },
    };
  });
}

const COLUMNS: Column<TemplateRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(150px, 1.2fr)", sort: (row) => row.template.metadata.name, cell: (row) => <b>{row.template.metadata.name}</b>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.8fr)", sort: (row) => row.template.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.template.metadata.namespace}</span>, phone: "second" },
  { id: "description", label: t("Description"), width: "minmax(140px, 1.6fr)", cell: (row) => row.template.spec?.description ?? "" },
  { id: "cpu", label: t("CPU"), width: "52px", right: true, cell: (row) => row.cpus },
  { id: "memory", label: t("Memory"), width: "80px", right: true, cell: (row) => row.memory },
  { id: "versions", label: t("Versions"), width: "70px", right: true, sort: (row) => row.versions, cell: (row) => row.versions },
  { id: "age", label: t("Age"), width: "52px", right: true, cell: (row) => <Age time={row.template.metadata.creationTimestamp} /> },
];

async function askDelete({ template, versions }: TemplateRow): Promise<void> {
  const { name, namespace } = template.metadata;
  const body = <p>{t("Its {n} versions are deleted as well. Machines that were made from it stay.", { n: versions })}</p>;
  const answer = await confirm({ title: t("Delete the template {name}?", { name }), body, action: t("Delete"), danger: true });
  if (answer) await deleteObject(TEMPLATE, namespace, name);
}

export function Templates() {
  const templates = useCollection<Template>(TEMPLATE);
  const versions = useCollection<TemplateVersion>(TEMPLATE_VERSION);
  const menu = (row: TemplateRow) => {
    const { namespace } = row.template.metadata;
    const version = `/api/harvesterhci.io/v1beta1/virtualmachinetemplateversions/${namespace}/${row.standard}`;
    const items: MenuItem[] = [
      { label: t("Create machine"), icon: "monitor", href: href(`/machines/new?template=${namespace}/${row.standard}`), disabled: row.standard ? notAllowed("create", MACHINE) : t("It has no version") },
      { label: t("Edit default version as YAML"), icon: "edit", href: href(version), disabled: row.standard ? undefined : t("It has no version") },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", TEMPLATE), run: () => void askDelete(row) },
    ];
    return <Menu label={t("Actions of {name}", { name: row.template.metadata.name })} items={items} />;
  };
  return (
    <ListPage
      title={t("Templates")}
      source={templates}
      rows={rowsOf(templates.items.values(), [...versions.items.values()])}
      columns={COLUMNS}
      keyOf={(row) => `${row.template.metadata.namespace}/${row.template.metadata.name}`}
      menu={menu}
      empty={
        <Empty icon="layers" title={t("No templates yet")} command="kubectl get virtualmachinetemplates.harvesterhci.io -A">
          {t("A template is a machine to make others from, in versions.")}
        </Empty>
      }
    />
  );
}
