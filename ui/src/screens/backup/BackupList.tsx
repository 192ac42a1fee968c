import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { backupMenu } from "../../actions/backup.tsx";
import { BACKUP } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { MachineBackup } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu } from "../../components/Menu.tsx";
import { t } from "../../messages.ts";
import { backupStatus, isOffCluster, machineOf, sizeOf } from "../../model/backup.ts";
import type { Filterable } from "../../model/filter.ts";
import { formatBytes } from "../../model/quantity.ts";
import { href, machinePath } from "../../router.ts";
import { BackupState } from "./BackupState.tsx";
import { NewBackup } from "./NewBackup.tsx";
import { TargetCard } from "./TargetCard.tsx";

interface BackupRow extends Filterable {
  backup: MachineBackup;
  machine: string;
}

function rowOf(backup: MachineBackup): BackupRow {
  const { name, namespace } = backup.metadata;
  const machine = machineOf(backup);
  return { backup, machine, text: `${name} ${namespace} ${machine}`.toLowerCase(), fields: { status: backupStatus(backup).word, project: namespace, machine } };
}

const COLUMNS: Column<BackupRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(180px, 1.6fr)", sort: (row) => row.backup.metadata.name, cell: (row) => <b>{row.backup.metadata.name}</b>, phone: "first" },
  { id: "machine", label: t("Machine"), width: "minmax(110px, 1fr)", sort: (row) => row.machine, phone: "second", cell: (row) => <a tabIndex={-1} href={href(machinePath(row.backup.metadata.namespace ?? "", row.machine, "backups"))}>{row.machine}</a> },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.backup.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.backup.metadata.namespace}</span> },
  { id: "status", label: t("Status"), width: "minmax(130px, 1.2fr)", sort: (row) => backupStatus(row.backup).word, cell: (row) => <BackupState backup={row.backup} />, phone: "second" },
  { id: "size", label: t("Disks"), width: "80px", right: true, sort: (row) => sizeOf(row.backup), cell: (row) => formatBytes(sizeOf(row.backup) || undefined) },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.backup.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.backup.metadata.creationTimestamp} /> },
];

/** Backups outside of the cluster. */
export function BackupList({ tabs }: { tabs: ComponentChildren }) {
  const backups = useCollection<MachineBackup>(BACKUP);
  const [making, setMaking] = useState(false);
  const actions = may("create", "harvesterhci.io", "virtualmachinebackups") && (
    <Button icon="plus" look="primary" onClick={() => setMaking(true)}>
      {t("Back up a machine")}
    </Button>
  );
  return (
    <ListPage
      title={t("Backups")}
      source={backups}
      rows={[...backups.items.values()].filter(isOffCluster).map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => `${row.backup.metadata.namespace}/${row.backup.metadata.name}`}
      menu={(row) => <Menu label={t("Actions of {name}", { name: row.backup.metadata.name })} items={() => backupMenu(row.backup)} />}
      actions={actions}
      hint={t("Filter: name, machine:web, status:failed")}
      before={
        <>
          {tabs}
          {may("list", "harvesterhci.io", "settings") && <TargetCard />}
        </>
      }
      empty={
        <Empty icon="history" title={t("No backups yet")} action={actions}>
          {t("A backup is a copy of a machine and its disks outside of the cluster. It outlives the machine and its volumes.")}
        </Empty>
      }
    >
      {making && <NewBackup onClose={() => setMaking(false)} />}
    </ListPage>
  );
}
