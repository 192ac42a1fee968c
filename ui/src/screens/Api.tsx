// Every kind that the server has: a list as kubectl prints it, and each object as YAML.
import { useEffect, useState } from "preact/hooks";
import { deleteObject } from "../actions/remove.ts";
import { get } from "../api/http.ts";
import { kubectlName, pathOf, type Kind } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import { may } from "../api/session.ts";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { CopyLine } from "../components/Copy.tsx";
import { FilterBox } from "../components/FilterBox.tsx";
import { ErrorNote } from "../components/Note.tsx";
import { Page } from "../components/Page.tsx";
import { YamlEditor } from "../components/YamlEditor.tsx";
import { t } from "../messages.ts";
import { compileFilter } from "../model/filter.ts";
import { here, href, navigate } from "../router.ts";

interface Discovered extends Kind {
  verbs: string[];
}

interface GroupList {
  items: {
    metadata: { name?: string };
    versions: { version: string; resources: { resource: string; scope: string; verbs: string[]; responseKind: { kind: string } }[] }[];
  }[];
}

const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
let known: Promise<Discovered[]> | null = null;

/** The kinds of the preferred versions that can be listed. */
async function discover(): Promise<Discovered[]> {
  const lists = await Promise.all(["/api", "/apis"].map((path) => get<GroupList>(path, { accept: AGGREGATED })));
  const found = lists.flatMap((list) =>
    list.items.flatMap((group) =>
      group.versions.slice(0, 1).flatMap((version) =>
        version.resources.map((one) => ({
          group: group.metadata.name ?? "", version: version.version, plural: one.resource,
          kind: one.responseKind.kind, namespaced: one.scope === "Namespaced", verbs: one.verbs,
        })),
      ),
    ),
  );
  return found.filter((kind) => kind.verbs.includes("list")).sort((a, b) => a.kind.localeCompare(b.kind));
}

const pageOf = (kind: Kind) => `/api/${kind.group || "core"}/${kind.version}/${kind.plural}`;

export function Api({ words }: { words: string[] }) {
  const [, group, version, plural, ...rest] = words;
  const [kinds, setKinds] = useState<Discovered[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    known ??= discover();
    known.then(setKinds, (failure: unknown) => ((known = null), setError(failure)));
  }, []);
  if (error) return <Page title="API"><ErrorNote error={error} /></Page>;
  if (!kinds) return null;
  if (!plural) return <KindList kinds={kinds} />;
  const kind = kinds.find((one) => one.plural === plural && (one.group || "core") === group) ?? null;
  const exact = kind && { ...kind, version };
  if (!exact) return <Page title="API"><ErrorNote error={new Error(t("The server has no kind {name}.", { name: plural }))} /></Page>;
  if (rest.length === 0) return <ObjectList key={plural} kind={exact} />;
  const [namespace, name] = exact.namespaced ? rest : ["", rest[0]];
  return <ObjectPage key={rest.join("/")} kind={exact} namespace={namespace} name={name} />;
}

function KindList({ kinds }: { kinds: Discovered[] }) {
  const matches = compileFilter(here.value.query.get("q") ?? "");
  const shown = kinds.filter((kind) => matches({ text: `${kind.kind} ${kind.plural} ${kind.group}`.toLowerCase(), fields: { group: kind.group || "core" } }));
  return (
    <Page title="API">
      <p class="muted">{t("Everything in this dashboard is an object of the Kubernetes API. Any of them can be read and changed here or with kubectl.")}</p>
      <div class="toolbar">
        <FilterBox shown={shown.length} all={kinds.length} />
      </div>
      <section class="card scroll-x">
        <table class="plain">
          <thead>
            <tr>
              <th>{t("Kind")}</th>
              <th>{t("Group")}</th>
              <th>{t("Version")}</th>
              <th>{t("Scope")}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((kind) => (
              <tr key={pageOf(kind)}>
                <td>
                  <a href={href(pageOf(kind))}>{kind.kind}</a>
                </td>
                <td class="muted">{kind.group || "core"}</td>
                <td class="muted">{kind.version}</td>
                <td class="muted">{kind.namespaced ? t("project") : t("cluster")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </Page>
  );
}

interface Table {
  columnDefinitions: { name: string; priority: number }[];
  rows: { cells: unknown[]; object: KubeObject }[];
}

const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";

function ObjectList({ kind }: { kind: Discovered }) {
  const [table, setTable] = useState<Table | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = () => void get<Table>(pathOf(kind), { accept: TABLE }).then(setTable, setError);
  useEffect(load, [kind.plural]);
  const columns = (table?.columnDefinitions ?? []).map((one, index) => ({ ...one, index })).filter((one) => one.priority === 0);
  const matches = compileFilter(here.value.query.get("q") ?? "");
  const rows = (table?.rows ?? []).filter((row) => matches({ text: `${row.object.metadata.namespace ?? ""} ${row.cells.join(" ")}`.toLowerCase(), fields: { project: row.object.metadata.namespace } }));
  const path = (object: KubeObject) => `${pageOf(kind)}${kind.namespaced ? `/${object.metadata.namespace}` : ""}/${encodeURIComponent(object.metadata.name)}`;
  return (
    <Page title={kind.kind} above={<Crumbs />} actions={<Button icon="refresh" onClick={load}>{t("Refresh")}</Button>}>
      <CopyLine text={`kubectl get ${kubectlName(kind)}${kind.namespaced ? " -A" : ""}`} />
      <ErrorNote error={error} />
      <div class="toolbar">
        <FilterBox shown={rows.length} all={table?.rows.length ?? 0} />
      </div>
      <section class="card scroll-x">
        <table class="plain">
          <thead>
            <tr>
              {kind.namespaced && <th>{t("Project")}</th>}
              {columns.map((column) => (
                <th key={column.name}>{column.name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, 500).map((row) => (
              <tr key={`${row.object.metadata.namespace}/${row.object.metadata.name}`}>
                {kind.namespaced && <td class="muted">{row.object.metadata.namespace}</td>}
                {columns.map((column) => (
                  <td key={column.name} class="wrap">
                    {column.index === 0 ? <a href={href(path(row.object))}>{String(row.cells[0])}</a> : String(row.cells[column.index] ?? "")}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {rows.length > 500 && <p class="muted">{t("The first {n} are shown.", { n: 500 })}</p>}
    </Page>
  );
}

const Crumbs = () => (
  <nav class="crumbs" aria-label={t("Where")}>
    <a href={href("/api")}>API</a>
  </nav>
);

function ObjectPage({ kind, namespace, name }: { kind: Discovered; namespace: string; name: string }) {
  const [object, setObject] = useState<KubeObject | null>(null);
  const [error, setError] = useState<unknown>(null);
  const path = pathOf(kind, namespace, name);
  useEffect(() => void get<KubeObject>(path).then(setObject, setError), [path]);
  const askDelete = async () => {
    const answer = await confirm({ title: t("Delete {kind} {name}?", { kind: kind.kind, name }), action: t("Delete"), danger: true, type: name });
    if (answer && (await deleteObject(kind, namespace, name))) navigate(pageOf(kind));
  };
  return (
    <Page
      full
      title={name}
      above={
        <nav class="crumbs" aria-label={t("Where")}>
          <a href={href("/api")}>API</a>
          <span>/</span>
          <a href={href(pageOf(kind))}>{kind.kind}</a>
          {namespace && <span>/ {namespace}</span>}
        </nav>
      }
      actions={kind.verbs.includes("delete") && may("delete", kind.group, kind.plural) && object && <Button look="danger" icon="trash" onClick={() => void askDelete()}>{t("Delete")}</Button>}
    >
      <ErrorNote error={error} />
      {object && <YamlEditor kind={kind} object={object} readOnly={!kind.verbs.includes("update") || !may("update", kind.group, kind.plural)} />}
    </Page>
  );
}
