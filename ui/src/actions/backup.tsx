// Harvester's backup objects. Those of the type snapshot are carried out as snapshots of machines and
// shown as such; those of the type backup go to a target outside the cluster.
import { BACKUP } from "../api/kinds.ts";
import type { MachineBackup } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import type { Status } from "../model/status.ts";
import { deleteObject, notAllowed } from "./remove.ts";

export const isOffCluster = (backup: MachineBackup): boolean => backup.spec?.type !== "snapshot";

export function backupStatus(backup: MachineBackup): Status {
  if (backup.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (backup.status?.readyToUse) return { tone: "ok", word: "Ready" };
  const reason = backup.status?.error?.message;
  return reason ? { tone: "bad", word: "Failed", reason } : { tone: "busy", word: "In progress" };
}

async function askDelete(backup: MachineBackup): Promise<void> {
  const { name, namespace } = backup.metadata;
  const body = <p>{t("The machine and its disks are not touched.")}</p>;
  if (!(await confirm({ title: t("Delete the backup {name}?", { name }), body, action: t("Delete"), danger: true }))) return;
  await deleteObject(BACKUP, namespace, name);
}

export function backupMenu(backup: MachineBackup): MenuItem[] {
  return [{ label: t("Delete"), icon: "trash", danger: true, disabled: notAllowed("delete", BACKUP), run: () => void askDelete(backup) }];
}
