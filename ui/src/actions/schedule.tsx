// What can be done to schedules of backups.
import { FIELD_MANAGER, mergePatch, post } from "../api/http.ts";
import { BACKUP_SCHEDULE, kubectlName, pathOf } from "../api/kinds.ts";
import type { BackupSchedule } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { deleteObject, notAllowed } from "./remove.ts";

export interface ScheduleDraft {
  namespace: string;
  name: string;
  machine: string;
  type: "snapshot" | "backup";
  cron: string;
  retain: number;
  maxFailure: number;
}

export function createSchedule(draft: ScheduleDraft): Promise<unknown> {
  const { namespace, name, machine, type, cron, retain, maxFailure } = draft;
  const source = { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: machine };
  const body = {
    apiVersion: "harvesterhci.io/v1beta1", kind: "ScheduleVMBackup", metadata: { name, namespace },
    spec: { cron, retain, maxFailure, suspend: false, vmbackup: { type, source } },
  };
  return post(pathOf(BACKUP_SCHEDULE, namespace), body, { query: { fieldManager: FIELD_MANAGER } });
}

function suspend(schedule: BackupSchedule, value: boolean): Promise<boolean> {
  const { name, namespace = "" } = schedule.metadata;
  const patch = { spec: { suspend: value } };
  const command = `kubectl patch ${kubectlName(BACKUP_SCHEDULE)} ${name} -n ${namespace} --type merge -p '${JSON.stringify(patch)}'`;
  return perform(`${value ? t("Suspend") : t("Resume")}: ${name}`, () => mergePatch(pathOf(BACKUP_SCHEDULE, namespace, name), patch), { command });
}

async function askDelete(schedule: BackupSchedule): Promise<void> {
  const { name, namespace } = schedule.metadata;
  const body = <p>{t("What it made stays.")}</p>;
  if (!(await confirm({ title: t("Delete the schedule {name}?", { name }), body, action: t("Delete"), danger: true }))) return;
  await deleteObject(BACKUP_SCHEDULE, namespace, name);
}

export function scheduleMenu(schedule: BackupSchedule): MenuItem[] {
  const suspended = schedule.spec?.suspend === true;
  const refusal = notAllowed("patch", BACKUP_SCHEDULE);
  return [
    suspended
      ? { label: t("Resume"), icon: "play", disabled: refusal, run: () => void suspend(schedule, false) }
      : { label: t("Suspend"), icon: "pause", disabled: refusal, run: () => void suspend(schedule, true) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", BACKUP_SCHEDULE), run: () => void askDelete(schedule) },
  ];
}
