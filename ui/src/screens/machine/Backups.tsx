import { useState } from "preact/hooks";
import { backupMenu } from "../../actions/backup.tsx";
import { scheduleMenu } from "../../actions/schedule.tsx";
import { BACKUP, BACKUP_SCHEDULE } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { BackupSchedule, MachineBackup } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Empty } from "../../components/Empty.tsx";
import { Menu } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { isOffCluster, machineOf, scheduleStatus, sizeOf } from "../../model/backup.ts";
import type { MachineRow } from "../../model/machine.ts";
import { formatBytes } from "../../model/quantity.ts";
import { BackupState } from "../backup/BackupState.tsx";
import { NewBackup } from "../backup/NewBackup.tsx";
import { NewSchedule } from "../backup/NewSchedule.tsx";

/** The backups of a machine, and the schedule that makes them. */
export function MachineBackups({ row }: { row: MachineRow }) {
  const all = useCollection<MachineBackup>(BACKUP, { namespace: row.namespace });
  const [making, setMaking] = useState(false);
  const own = [...all.items.values()]
    .filter((one) => isOffCluster(one) && machineOf(one) === row.name)
    .sort((a, b) => ((a.metadata.creationTimestamp ?? "") < (b.metadata.creationTimestamp ?? "") ? 1 : -1));
  return (
    <>
      <Schedule row={row} />
      <section class="card">
        <header>
          <h2>{t("Backups")}</h2>
          {may("create", "harvesterhci.io", "virtualmachinebackups") && (
            <Button small icon="history" look="primary" onClick={() => setMaking(true)}>
              {t("Back up")}
            </Button>
          )}
        </header>
        {own.length === 0 ? (
          <Empty icon="history" title={t("No backups yet")}>
            {t("A backup is a copy of a machine and its disks outside of the cluster. It outlives the machine and its volumes.")}
          </Empty>
        ) : (
          <div class="scroll-x">
            <table class="plain">
              <thead>
                <tr>
                  {["Name", "Status", "Disks", "Age", ""].map((label) => (
                    <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {own.map((one) => (
                  <tr key={one.metadata.name}>
                    <td>
                      <b>{one.metadata.name}</b>
                    </td>
                    <td>
                      <BackupState backup={one} />
                    </td>
                    <td class="muted">{formatBytes(sizeOf(one) || undefined)}</td>
                    <td>
                      <Age time={one.metadata.creationTimestamp} />
                    </td>
                    <td class="right">
                      <Menu label={t("Actions of {name}", { name: one.metadata.name })} items={() => backupMenu(one)} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {making && <NewBackup of={row} onClose={() => setMaking(false)} />}
      </section>
    </>
  );
}

/** A machine has one schedule at most. */
function Schedule({ row }: { row: MachineRow }) {
  const all = useCollection<BackupSchedule>(BACKUP_SCHEDULE, { namespace: row.namespace });
  const [making, setMaking] = useState(false);
  const schedule = [...all.items.values()].find((one) => one.spec?.vmbackup?.source?.name === row.name);
  return (
    <section class="card">
      <header>
        <h2>{t("Schedule")}</h2>
        {schedule ? (
          <Menu label={t("Actions of {name}", { name: schedule.metadata.name })} items={() => scheduleMenu(schedule)} />
        ) : (
          may("create", "harvesterhci.io", "schedulevmbackups") && (
            <Button small icon="clock" onClick={() => setMaking(true)}>
              {t("Create schedule")}
            </Button>
          )
        )}
      </header>
      <div class="body">
        {schedule ? (
          <dl class="facts">
            <dt>{t("Name")}</dt>
            <dd>{schedule.metadata.name}</dd>
            <dt>{t("Status")}</dt>
            <dd>
              <StatusMark status={scheduleStatus(schedule)} reason />
            </dd>
            <dt>{t("Makes")}</dt>
            <dd>{t(schedule.spec?.vmbackup?.type ?? "backup")}</dd>
            <dt>{t("Schedule (UTC)")}</dt>
            <dd class="mono">{schedule.spec?.cron}</dd>
            <dt>{t("Kept")}</dt>
            <dd>{`${schedule.status?.vmbackupInfo?.length ?? 0} / ${schedule.spec?.retain ?? "–"}`}</dd>
          </dl>
        ) : (
          <p class="muted">{t("Nothing is made by schedule.")}</p>
        )}
      </div>
      {making && <NewSchedule of={row} onClose={() => setMaking(false)} />}
    </section>
  );
}
