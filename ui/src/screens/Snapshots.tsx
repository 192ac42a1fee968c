import { snapshotMenu, snapshotStatus, sourceOf } from "../actions/snapshot.tsx";
import { SNAPSHOT } from "../api/kinds.ts";
import type { MachineSnapshot } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu } from "../components/Menu.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import type { Filterable } from "../model/filter.ts";
import { href, machinePath } from "../router.ts";

interface SnapshotRow extends Filterable {
  snapshot: MachineSnapshot;
  machine: string;
}

function rowOf(snapshot: MachineSnapshot): SnapshotRow {
  const { name, namespace } = snapshot.metadata;
  const machine = sourceOf(snapshot);
  return {
    snapshot, machine,
    text: `${name} ${namespace} ${machine}`.toLowerCase(),
    fields: { status: snapshotStatus(snapshot).word, project: namespace, machine },
  };
}

const COLUMNS: Column<SnapshotRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(180px, 1.6fr)", sort: (row) => row.snapshot.metadata.name, cell: (row) => <b>{row.snapshot.metadata.name}</b>, phone: "first" },
  {
    id: "machine", label: t("Machine"), width: "minmax(110px, 1fr)", sort: (row) => row.machine, phone: "second",
    cell: (row) => <a tabIndex={-1} href={href(machinePath(row.snapshot.metadata.namespace ?? "", row.machine, "snapshots"))}>{row.machine}</a>,
  },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.snapshot.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.snapshot.metadata.namespace}</span> },
  { id: "status", label: t("Status"), width: "minmax(110px, 1fr)", sort: (row) => snapshotStatus(row.snapshot).word, cell: (row) => <StatusMark status={snapshotStatus(row.snapshot)} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.snapshot.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.snapshot.metadata.creationTimestamp} /> },
];

export function Snapshots() {
  const snapshots = useCollection<MachineSnapshot>(SNAPSHOT);
  return (
    <ListPage
      title={t("Snapshots")}
      source={snapshots}
      rows={[...snapshots.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => `${row.snapshot.metadata.namespace}/${row.snapshot.metadata.name}`}
      menu={(row) => <Menu label={t("Actions of {name}", { name: row.snapshot.metadata.name })} items={() => snapshotMenu(row.snapshot)} />}
      hint={t("Filter: name, machine:web, status:failed")}
      empty={
        <Empty icon="camera" title={t("No snapshots yet")} action={<a class="button" href={href("/machines")}>{t("Go to machines")}</a>}>
          {t("A snapshot holds the disks and the configuration of a machine at one moment. Take one from the menu of a machine.")}
        </Empty>
      }
    />
  );
}
