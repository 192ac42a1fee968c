// The state of a machine's migrations.
import type { Instance, Migration } from "../api/types.ts";
import type { Status } from "./status.ts";

const PHASES: Record<string, string> = {
  Pending: "Waiting for a turn or a host",
  Scheduling: "Choosing a host",
  Scheduled: "Host chosen",
  PreparingTarget: "Preparing the target",
  TargetReady: "Target is ready",
  Running: "Copying memory",
  WaitingForSync: "Waiting for the target",
  Synchronizing: "Copying memory",
};

const ORDER = Object.keys(PHASES);

export const isOver = (migration: Migration): boolean => ["Succeeded", "Failed"].includes(migration.status?.phase ?? "");

export function migrationStatus(migration: Migration): Status {
  const phase = migration.status?.phase ?? "Pending";
  const reason = migration.status?.migrationState?.failureReason;
  if (phase === "Succeeded") return { tone: "ok", word: "Migrated" };
  if (phase === "Failed") return { tone: "bad", word: "Migration failed", reason };
  if (migration.metadata.deletionTimestamp) return { tone: "busy", word: "Aborting" };
  return { tone: "busy", word: PHASES[phase] ?? phase };
}

/** How far it is by its phase, 0 to 1: how much memory is left is not known to the API. */
export function migrationProgress(migration: Migration): number {
  if (isOver(migration)) return 1;
  const at = ORDER.indexOf(migration.status?.phase ?? "Pending");
  return Math.max(0, at) / ORDER.length;
}

/** The newest migration of a machine. */
export function newestMigration(all: Iterable<Migration>, name: string): Migration | undefined {
  const own = [...all].filter((one) => one.spec?.vmiName === name);
  return own.sort((a, b) => ((a.metadata.creationTimestamp ?? "") < (b.metadata.creationTimestamp ?? "") ? 1 : -1))[0];
}

export function targetOf(migration: Migration, instance?: Instance): string {
  const wanted = (migration.spec?.addedNodeSelector as Record<string, string> | undefined)?.["kubernetes.io/hostname"];
  // The instance still has the state of the migration before.
  const state = instance?.status?.migrationState;
  const own = state?.migrationUid === migration.metadata.uid ? state?.targetNode : undefined;
  return migration.status?.migrationState?.targetNode ?? own ?? wanted ?? "";
}
