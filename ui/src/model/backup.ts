// Backups, schedules and the place that backups go to, as pages show them.
import { condition, type Condition } from "../api/objects.ts";
import type { BackupSchedule, MachineBackup, Setting } from "../api/types.ts";
import { t } from "../messages.ts";
import type { Status } from "./status.ts";

/** Objects of the type snapshot are carried out as snapshots of machines and shown as such. */
export const isOffCluster = (backup: MachineBackup): boolean => backup.spec?.type !== "snapshot";

export const machineOf = (backup: MachineBackup): string => backup.spec?.source?.name ?? "";

export function backupStatus(backup: MachineBackup): Status {
  if (backup.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (backup.status?.readyToUse) return { tone: "ok", word: "Ready" };
  const reason = backup.status?.error?.message;
  return reason ? { tone: "bad", word: "Failed", reason } : { tone: "busy", word: "In progress" };
}

/** How much of a backup is sent, in percent; nothing when none of it is under way. */
export function progressOf(backup: MachineBackup): number | undefined {
  return backupStatus(backup).word === "In progress" ? (backup.status?.progress ?? 0) : undefined;
}

/** Bytes of all disks of a backup. */
export function sizeOf(backup: MachineBackup): number {
  return (backup.status?.volumeBackups ?? []).reduce((sum, one) => sum + (one.volumeSize ?? 0), 0);
}

export function scheduleStatus(schedule: BackupSchedule): Status {
  const { spec, status } = schedule;
  if (schedule.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  const failures = status?.failure ?? 0;
  const told = condition(status?.conditions as Condition[] | undefined, "BackupSuspend");
  if (spec?.suspend) return failures > 0 ? { tone: "bad", word: "Suspended", reason: told?.message } : { tone: "off", word: "Suspended" };
  if (status?.suspended) return { tone: "busy", word: "Resuming" };
  return failures > 0 ? { tone: "warn", word: "Failing", reason: t("{n} failed in a row", { n: failures }) } : { tone: "ok", word: "Active" };
}

/** Where backups go, as the form has it. */
export interface BackupTarget {
  type: "" | "s3" | "nfs";
  endpoint: string;
  bucketName: string;
  bucketRegion: string;
  accessKeyId: string;
  secretAccessKey: string;
  virtualHostedStyle: boolean;
}

export const NO_TARGET: BackupTarget = { type: "", endpoint: "", bucketName: "", bucketRegion: "", accessKeyId: "", secretAccessKey: "", virtualHostedStyle: false };

/** The target in a setting. Its keys are kept elsewhere. */
export function targetOf(value: string | undefined): BackupTarget {
  try {
    const read = JSON.parse(value || "{}") as Partial<BackupTarget>;
    return { ...NO_TARGET, ...read };
  } catch {
    return NO_TARGET;
  }
}

/** The value of the setting for a target; fields of the other type are left out. */
export function targetValue(target: BackupTarget): string {
  const { type, endpoint, bucketName, bucketRegion, accessKeyId, secretAccessKey, virtualHostedStyle } = target;
  if (type === "") return "{}";
  if (type === "nfs") return JSON.stringify({ type, endpoint });
  return JSON.stringify({ type, endpoint, accessKeyId, secretAccessKey, bucketName, bucketRegion, virtualHostedStyle });
}

/** Why a target cannot be saved yet. */
export function targetMissing(target: BackupTarget): string | undefined {
  if (target.type === "nfs") return /^nfs:\/\/[^/]+:\/.+/.test(target.endpoint) ? undefined : t("The endpoint is nfs://SERVER:/SHARE");
  if (target.type !== "s3") return undefined;
  if (!target.bucketName) return t("The bucket is missing");
  if (!target.bucketRegion) return t("The region is missing");
  return target.accessKeyId && target.secretAccessKey ? undefined : t("The keys are missing");
}

/** `s3 backups (us-east-1) at https://…`. */
export function targetText(target: BackupTarget): string {
  if (target.type === "nfs") return target.endpoint;
  return `${target.bucketName} (${target.bucketRegion})${target.endpoint ? ` ${target.endpoint}` : ""}`;
}

/** Whether the server reached the target when it last tried. */
export function targetStatus(setting: Setting): Status {
  if (targetOf(setting.value).type === "") return { tone: "off", word: "Not set" };
  const told = condition(setting.status?.conditions as Condition[] | undefined, "configured");
  if (told?.status === "True") return { tone: "ok", word: "Reached" };
  if (told?.status === "False") return { tone: "bad", word: "Not reached", reason: told.message };
  return { tone: "busy", word: "Connecting" };
}
