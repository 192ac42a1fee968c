import { abortMigration } from "../actions/migration.tsx";
import { CLONE, DATA_VOLUME, HOST, IMAGE, MIGRATION, RESTORE, SNAPSHOT, type Kind } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import { may } from "../api/session.ts";
import { useCollection, type Collection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu } from "../components/Menu.tsx";
import { Meter } from "../components/Meter.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { cloneTask, dataVolumeTask, hostTask, imageTask, migrationTask, orderTasks, restoreTask, snapshotTask, type Task } from "../model/task.ts";
import { here, href, setQuery } from "../router.ts";

const SOURCES: [Kind, (object: never) => Task | undefined][] = [
  [MIGRATION, migrationTask],
  [IMAGE, imageTask],
  [DATA_VOLUME, dataVolumeTask],
  [SNAPSHOT, snapshotTask],
  [RESTORE, restoreTask],
  [CLONE, cloneTask],
  [HOST, hostTask],
];

const COLUMNS: Column<Task>[] = [
  // In the order of what needs somebody first.
  { id: "task", label: t("Task"), width: "minmax(110px, 0.8fr)", cell: (row) => t(row.verb), phone: "second" },
  { id: "name", label: t("Of"), width: "minmax(140px, 1.2fr)", cell: (row) => <a tabIndex={-1} href={href(row.path)}>{row.name}</a>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", cell: (row) => <span class="muted">{row.namespace || "–"}</span> },
  { id: "status", label: t("Status"), width: "minmax(150px, 1.6fr)", cell: (row) => <StatusMark status={row.status} reason />, phone: "second" },
  {
    id: "progress", label: t("Progress"), width: "110px",
    cell: (row) => (row.progress === undefined ? "" : <div class="grow"><Meter value={row.progress} of={1} label={t("Progress of {name}", { name: row.name })} plain /></div>),
  },
  { id: "age", label: t("Begun"), width: "60px", right: true, cell: (row) => <Age time={row.started} /> },
];

const STATES: [label: string, query: string][] = [["Running", "state:running"], ["Failed", "state:failed"]];

export function Tasks() {
  // The list of kinds never changes while the page is open, so neither does the order of hooks.
  const collections = SOURCES.filter(([kind]) => may("list", kind.group, kind.plural)).map(([kind, of]) => ({ all: useCollection<KubeObject>(kind), of }));
  const rows = orderTasks(collections.flatMap(({ all, of }) => [...all.items.values()].flatMap((one) => of(one as never) ?? [])));
  const text = here.value.query.get("q") ?? "";
  const menu = (row: Task) => {
    const { migration } = row;
    const refusal = !migration ? t("It cannot be cancelled") : may("delete", MIGRATION.group, MIGRATION.plural) ? undefined : t("Not allowed: delete {resource}", { resource: MIGRATION.plural });
    return (
      <Menu
        label={t("Actions of {name}", { name: row.name })}
        items={[
          { label: t("Show"), icon: "external", href: href(row.path) },
          { label: t("Cancel…"), icon: "close", disabled: refusal, run: () => void (migration && abortMigration(migration)) },
        ]}
      />
    );
  };
  const actions = (
    <div class="row">
      {STATES.map(([label, query]) => (
        <Button key={label} small look="quiet" pressed={text === query} onClick={() => setQuery({ q: text === query ? null : query })}>
          {t(label)}
        </Button>
      ))}
    </div>
  );
  return (
    <ListPage
      title={t("Tasks")}
      source={collections[0]?.all ?? NOTHING}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => row.key}
      path={(row) => row.path}
      menu={menu}
      actions={actions}
      hint={t("Filter: name, state:running, verb:migrate, project:web")}
      empty={
        <Empty icon="tasks" title={t("Nothing is running")}>
          {t("Migrations, imports, snapshots, restores, clones and maintenance appear here, whoever began them: this page, kubectl or another client.")}
        </Empty>
      }
    />
  );
}

/** For users who may list none of the kinds. */
const NOTHING = { items: new Map(), version: { value: 0 }, freshness: { value: "live" }, error: { value: null } } as unknown as Collection<KubeObject>;
