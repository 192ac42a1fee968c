// Alarms as the page shows them: which need somebody, their order, and where their object is.
import type { Alarm } from "../api/types.ts";
import { hostPath, machinePath } from "../paths.ts";
import type { Status } from "./status.ts";

/** Whether somebody takes care of it, or it is silenced for now. */
export function isSettled(alarm: Alarm, now: number): boolean {
  const until = Date.parse(alarm.spec?.silencedUntil ?? "");
  return alarm.spec?.acknowledged === true || until > now;
}

const rank = (alarm: Alarm) => (alarm.status?.severity === "critical" ? 0 : 1);

/** The most severe first, then the oldest. */
export function ordered(alarms: Iterable<Alarm>): Alarm[] {
  const since = (alarm: Alarm) => alarm.status?.since ?? "";
  return [...alarms].sort((a, b) => rank(a) - rank(b) || since(a).localeCompare(since(b)));
}

export const openAlarms = (alarms: Iterable<Alarm>, now: number): Alarm[] => ordered(alarms).filter((alarm) => !isSettled(alarm, now));

export function alarmStatus(alarm: Alarm): Status {
  const critical = alarm.status?.severity === "critical";
  return { tone: critical ? "bad" : "warn", word: critical ? "Critical" : "Warning", reason: alarm.status?.reason };
}

/** The page of the object that an alarm concerns. */
export function objectPath(alarm: Alarm): string | null {
  const object = alarm.status?.object;
  if (!object) return null;
  switch (object.kind) {
    case "Node":
      return hostPath(object.name);
    case "VirtualMachine":
      return machinePath(object.namespace ?? "", object.name);
    case "Volume":
      return "/volumes";
    case "VirtualMachineImage":
      return "/images";
    case "VirtualMachineBackup":
      return "/backups";
    case "ScheduleVMBackup":
      return "/backups/schedules";
    case "BackupTarget":
      return "/settings";
    case "Upgrade":
      return "/upgrade";
    default:
      return null;
  }
}
