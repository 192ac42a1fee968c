import { snapshotMenu, snapshotStatus, sourceOf } from "../actions/snapshot.tsx";
import { backupMenu } from "../actions/backup.tsx";
import { claimOf, volumeSnapshotMenu, volumeSnapshotStatus } from "../actions/volumeSnapshot.tsx";
import { BACKUP, SNAPSHOT, VOLUME_SNAPSHOT } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import type { MachineBackup, MachineSnapshot, VolumeSnapshot } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { backupStatus, isOffCluster } from "../model/backup.ts";
import type { Filterable } from "../model/filter.ts";
import type { Status } from "../model/status.ts";
import { href, machinePath, volumePath } from "../router.ts";

interface SnapshotRow extends Filterable {
  snapshot: KubeObject;
  /** What it is of. */
  kind: "machine" | "volume" | "backup";
  source: string;
  status: Status;
  menu: () => MenuItem[];
}

function rowOf(snapshot: KubeObject, kind: SnapshotRow["kind"], source: string, status: Status, menu: SnapshotRow["menu"]): SnapshotRow {
  const { name, namespace } = snapshot.metadata;
  return {
    snapshot, kind, source, status, menu,
    text: `${name} ${namespace} ${source}`.toLowerCase(),
    fields: { status: status.word, project: namespace, kind, [kind]: source },
  };
}

function pathOf(row: SnapshotRow): string {
  const { namespace = "" } = row.snapshot.metadata;
  return row.kind !== "volume" ? machinePath(namespace, row.source, "snapshots") : volumePath(namespace, row.source);
}

const COLUMNS: Column<SnapshotRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(180px, 1.6fr)", sort: (row) => row.snapshot.metadata.name, cell: (row) => <b>{row.snapshot.metadata.name}</b>, phone: "first" },
  {
    id: "source", label: t("Of"), width: "minmax(140px, 1.2fr)", sort: (row) => `${row.kind} ${row.source}`, phone: "second",
    cell: (row) => <><span class="muted">{t(row.kind)}</span> <a tabIndex={-1} href={href(pathOf(row))}>{row.source}</a></>,
  },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.snapshot.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.snapshot.metadata.namespace}</span> },
  { id: "status", label: t("Status"), width: "minmax(110px, 1fr)", sort: (row) => row.status.word, cell: (row) => <StatusMark status={row.status} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.snapshot.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.snapshot.metadata.creationTimestamp} /> },
];

export function Snapshots() {
  const snapshots = useCollection<MachineSnapshot>(SNAPSHOT);
  const volumes = useCollection<VolumeSnapshot>(VOLUME_SNAPSHOT);
  const backups = useCollection<MachineBackup>(BACKUP);
  const rows = [
    ...[...snapshots.items.values()].map((one) => rowOf(one, "machine", sourceOf(one), snapshotStatus(one), () => snapshotMenu(one))),
    // Those that belong to the snapshot of a machine come and go with it.
    ...[...volumes.items.values()].filter((one) => !one.metadata.ownerReferences?.length).map((one) => rowOf(one, "volume", claimOf(one), volumeSnapshotStatus(one), () => volumeSnapshotMenu(one))),
    // A backup object of the type snapshot is shown as the snapshot that it made.
    ...[...backups.items.values()].filter(isOffCluster).map((one) => rowOf(one, "backup", one.spec?.source?.name ?? "", backupStatus(one), () => backupMenu(one))),
  ];
  return (
    <ListPage
      title={t("Snapshots")}
      source={snapshots}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => `${row.kind}/${row.snapshot.metadata.namespace}/${row.snapshot.metadata.name}`}
      menu={(row) => <Menu label={t("Actions of {name}", { name: row.snapshot.metadata.name })} items={row.menu} />}
      hint={t("Filter: name, machine:web, kind:volume, status:failed")}
      empty={
        <Empty icon="camera" title={t("No snapshots yet")} action={<a class="button" href={href("/machines")}>{t("Go to machines")}</a>}>
          {t("A snapshot holds the disks and the configuration of a machine at one moment. Take one from the menu of a machine, or of a volume for that alone.")}
        </Empty>
      }
    />
  );
}
