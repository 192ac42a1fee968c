import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { scheduleMenu } from "../../actions/schedule.tsx";
import { BACKUP_SCHEDULE } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { BackupSchedule } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { scheduleStatus } from "../../model/backup.ts";
import type { Filterable } from "../../model/filter.ts";
import { href, machinePath } from "../../router.ts";
import { NewSchedule } from "./NewSchedule.tsx";

interface ScheduleRow extends Filterable {
  schedule: BackupSchedule;
  machine: string;
  type: string;
}

function rowOf(schedule: BackupSchedule): ScheduleRow {
  const { name, namespace } = schedule.metadata;
  const machine = schedule.spec?.vmbackup?.source?.name ?? "";
  const type = schedule.spec?.vmbackup?.type ?? "backup";
  return { schedule, machine, type, text: `${name} ${namespace} ${machine}`.toLowerCase(), fields: { status: scheduleStatus(schedule).word, project: namespace, machine, type } };
}

const COLUMNS: Column<ScheduleRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(140px, 1.4fr)", sort: (row) => row.schedule.metadata.name, cell: (row) => <b>{row.schedule.metadata.name}</b>, phone: "first" },
  { id: "machine", label: t("Machine"), width: "minmax(110px, 1fr)", sort: (row) => row.machine, phone: "second", cell: (row) => <a tabIndex={-1} href={href(machinePath(row.schedule.metadata.namespace ?? "", row.machine, "backups"))}>{row.machine}</a> },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.schedule.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.schedule.metadata.namespace}</span> },
  { id: "type", label: t("Makes"), width: "90px", sort: (row) => row.type, cell: (row) => t(row.type) },
  { id: "cron", label: t("Schedule (UTC)"), width: "minmax(110px, 0.9fr)", cell: (row) => <span class="mono">{row.schedule.spec?.cron}</span> },
  { id: "kept", label: t("Kept"), width: "80px", right: true, cell: (row) => `${row.schedule.status?.vmbackupInfo?.length ?? 0} / ${row.schedule.spec?.retain ?? "–"}` },
  { id: "status", label: t("Status"), width: "minmax(120px, 1.2fr)", sort: (row) => scheduleStatus(row.schedule).word, cell: (row) => <StatusMark status={scheduleStatus(row.schedule)} reason />, phone: "second" },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.schedule.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.schedule.metadata.creationTimestamp} /> },
];

export function ScheduleList({ tabs }: { tabs: ComponentChildren }) {
  const schedules = useCollection<BackupSchedule>(BACKUP_SCHEDULE);
  const [making, setMaking] = useState(false);
  const actions = may("create", "harvesterhci.io", "schedulevmbackups") && (
    <Button icon="plus" look="primary" onClick={() => setMaking(true)}>
      {t("Create schedule")}
    </Button>
  );
  return (
    <ListPage
      title={t("Schedules")}
      source={schedules}
      rows={[...schedules.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => `${row.schedule.metadata.namespace}/${row.schedule.metadata.name}`}
      menu={(row) => <Menu label={t("Actions of {name}", { name: row.schedule.metadata.name })} items={() => scheduleMenu(row.schedule)} />}
      actions={actions}
      hint={t("Filter: name, machine:web, status:suspended")}
      before={tabs}
      empty={
        <Empty icon="clock" title={t("No schedules yet")} action={actions}>
          {t("A schedule makes snapshots or backups of a machine again and again, and keeps the newest.")}
        </Empty>
      }
    >
      {making && <NewSchedule onClose={() => setMaking(false)} />}
    </ListPage>
  );
}
