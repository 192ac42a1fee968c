// The words for states: one place for every screen. Each has a tone, a shape and a word, so that
// colour is never the only sign.
import { condition, type Condition } from "../api/objects.ts";
import type { Instance, Machine } from "../api/types.ts";

export type Tone = "ok" | "busy" | "warn" | "bad" | "off";

export interface Status {
  tone: Tone;
  word: string;
  reason?: string;
}

const MACHINE: Record<string, [Tone, string]> = {
  Running: ["ok", "Running"],
  Starting: ["busy", "Starting"],
  Stopping: ["busy", "Stopping"],
  Terminating: ["busy", "Deleting"],
  Migrating: ["busy", "Migrating"],
  Provisioning: ["busy", "Preparing disks"],
  WaitingForReceiver: ["busy", "Waiting for migration"],
  WaitingForVolumeBinding: ["busy", "Waiting for disks"],
  DataVolumeError: ["bad", "Disk failed"],
  Paused: ["warn", "Paused"],
  Stopped: ["off", "Stopped"],
  ErrorUnschedulable: ["bad", "No host fits"],
  CrashLoopBackOff: ["bad", "Crash loop"],
  ErrImagePull: ["bad", "Image failed"],
  ImagePullBackOff: ["bad", "Image failed"],
  ErrorPvcNotFound: ["bad", "Disk missing"],
  Unknown: ["warn", "Unknown"],
};

/** Why a machine is not what it should be, from the conditions that say so. */
function reasonOf(conditions: Condition[]): string | undefined {
  const failure = conditions.find((one) => one.type === "Failure" && one.status === "True");
  const scheduled = conditions.find((one) => one.type === "PodScheduled" && one.status === "False");
  const synchronized = conditions.find((one) => one.type === "Synchronized" && one.status === "False");
  const ready = conditions.find((one) => one.type === "Ready" && one.status === "False");
  return (failure ?? scheduled ?? synchronized ?? ready)?.message || undefined;
}

export function machineStatus(machine: Machine, instance?: Instance): Status {
  const word = machine.status?.printableStatus ?? "Unknown";
  const [tone, shown] = MACHINE[word] ?? ["warn", word];
  const conditions = [...((machine.status?.conditions ?? []) as Condition[]), ...((instance?.status?.conditions ?? []) as Condition[])];
  if (machine.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  // Nobody has looked at it yet.
  if (!machine.status?.printableStatus) return { tone: "busy", word: "Accepted" };
  if (word === "Running") {
    if (condition(conditions, "RestartRequired")?.status === "True") {
      return { tone: "warn", word: "Restart needed", reason: condition(conditions, "RestartRequired")?.message };
    }
    const ready = condition(conditions, "Ready");
    if (ready?.status === "False" && ready.reason === "GuestNotResponding") {
      return { tone: "bad", word: "Not responding", reason: ready.message };
    }
    return { tone, word: shown };
  }
  return { tone, word: shown, reason: tone === "off" || tone === "ok" ? undefined : reasonOf(conditions) };
}

/** Whether a person has to do something about it. */
export const needsAttention = (status: Status): boolean => status.tone === "bad" || status.tone === "warn";

export function phaseStatus(phase: string | undefined): Status {
  switch (phase) {
    case "Succeeded":
    case "Bound":
    case "Ready":
    case "Active":
    case "True":
      return { tone: "ok", word: phase === "True" ? "Ready" : phase };
    case "Failed":
    case "Lost":
    case "False":
      return { tone: "bad", word: phase === "False" ? "Not ready" : phase };
    case undefined:
    case "":
      return { tone: "busy", word: "Pending" };
    default:
      return { tone: "busy", word: phase };
  }
}
