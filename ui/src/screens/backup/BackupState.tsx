import type { MachineBackup } from "../../api/types.ts";
import { Meter } from "../../components/Meter.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { backupStatus, progressOf } from "../../model/backup.ts";

/** The state of a backup, and how far it is. */
export function BackupState({ backup }: { backup: MachineBackup }) {
  const progress = progressOf(backup);
  return (
    <div class="row">
      <StatusMark status={progress === undefined ? backupStatus(backup) : { tone: "busy", word: "In progress", reason: `${progress} %` }} reason />
      {progress !== undefined && (
        <div class="grow">
          <Meter plain value={progress} of={100} label={t("Progress of {name}", { name: backup.metadata.name })} />
        </div>
      )}
    </div>
  );
}
