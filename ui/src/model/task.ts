// What the cluster is doing: operations whose state lives in objects, whoever asked for them.
import { condition, keyOf, type Condition, type KubeObject } from "../api/objects.ts";
import type { Host, Image, MachineRestore, MachineSnapshot, Migration } from "../api/types.ts";
import { hostPath, machinePath, volumePath } from "../paths.ts";
import type { Filterable } from "./filter.ts";
import { inMaintenance, conditionsOf } from "./host.ts";
import { imageStatus } from "./image.ts";
import { isOver, migrationProgress, migrationStatus } from "./migration.ts";
import type { Status } from "./status.ts";

export interface Task extends Filterable {
  key: string;
  /** What is done: "Migrate", "Import image". */
  verb: string;
  /** What it is done to. */
  name: string;
  namespace: string;
  path: string;
  status: Status;
  /** 0 to 1; nothing if it is not known. */
  progress?: number;
  started?: string;
  /** What is cancelled by deleting it. */
  migration?: Migration;
}

export interface CloneObject extends KubeObject {
  spec?: { source?: { name?: string }; target?: { name?: string } };
  status?: { phase?: string; targetName?: string; conditions?: Condition[] };
}

export interface DataVolumeObject extends KubeObject {
  status?: { phase?: string; progress?: string; conditions?: Condition[] };
}

type Parts = Omit<Task, "text" | "fields" | "started" | "namespace" | "key"> & { object: KubeObject };

function task({ object, ...parts }: Parts): Task {
  const { namespace = "", creationTimestamp } = object.metadata;
  const state = parts.status.tone === "busy" ? "running" : parts.status.tone === "bad" ? "failed" : "done";
  return {
    ...parts, namespace, started: creationTimestamp, key: `${parts.verb}/${keyOf(object)}`,
    text: `${parts.verb} ${parts.name} ${namespace}`.toLowerCase(),
    fields: { state, verb: parts.verb, project: namespace },
  };
}

export function migrationTask(one: Migration): Task {
  const name = one.spec?.vmiName ?? one.metadata.name;
  const over = isOver(one);
  return task({
    object: one, verb: "Migrate", name, path: machinePath(one.metadata.namespace ?? "", name), status: migrationStatus(one),
    progress: over ? undefined : migrationProgress(one), migration: over ? undefined : one,
  });
}

export function imageTask(one: Image): Task {
  const progress = one.status?.progress ?? 0;
  const status = imageStatus(one);
  const verb = one.spec?.sourceType === "upload" ? "Upload image" : "Import image";
  const name = one.spec?.displayName ?? one.metadata.name;
  return task({ object: one, verb, name, path: `/images?q=${encodeURIComponent(name)}`, status, progress: status.tone === "busy" && progress > 0 ? progress / 100 : undefined });
}

export function dataVolumeTask(one: DataVolumeObject): Task {
  const { phase = "Pending", progress = "" } = one.status ?? {};
  const reason = condition(one.status?.conditions, "Running")?.message || condition(one.status?.conditions, "Ready")?.message;
  const status: Status =
    phase === "Succeeded" ? { tone: "ok", word: "Done" } : phase === "Failed" ? { tone: "bad", word: "Failed", reason } : { tone: "busy", word: "In progress", reason };
  const percent = Number.parseFloat(progress);
  const name = one.metadata.name;
  return task({ object: one, verb: "Fill volume", name, path: volumePath(one.metadata.namespace ?? "", name), status, progress: status.tone === "busy" && percent > 0 ? percent / 100 : undefined });
}

export function snapshotTask(one: MachineSnapshot): Task {
  const { phase, readyToUse, error } = one.status ?? {};
  const status: Status = readyToUse
    ? { tone: "ok", word: "Done" }
    : phase === "Failed"
      ? { tone: "bad", word: "Failed", reason: error?.message }
      : { tone: "busy", word: "In progress", reason: error?.message };
  const name = one.spec?.source?.name ?? one.metadata.name;
  return task({ object: one, verb: "Take snapshot", name, path: machinePath(one.metadata.namespace ?? "", name, "snapshots"), status });
}

export function restoreTask(one: MachineRestore): Task {
  const conditions = (one.status?.conditions ?? []) as Condition[];
  const failure = condition(conditions, "Failure");
  const waits = condition(conditions, "Progressing");
  const status: Status = one.status?.complete
    ? { tone: "ok", word: "Done" }
    : failure?.status === "True"
      ? { tone: "bad", word: "Failed", reason: failure.message || failure.reason }
      : { tone: "busy", word: "In progress", reason: waits?.message || waits?.reason };
  const name = one.spec?.target?.name ?? one.metadata.name;
  return task({ object: one, verb: "Restore", name, path: machinePath(one.metadata.namespace ?? "", name), status });
}

export function cloneTask(one: CloneObject): Task {
  const { phase = "Pending" } = one.status ?? {};
  const status: Status = phase === "Succeeded" ? { tone: "ok", word: "Done" } : phase === "Failed" || phase === "Unknown" ? { tone: "bad", word: "Failed" } : { tone: "busy", word: "In progress", reason: phase };
  const name = one.status?.targetName ?? one.spec?.target?.name ?? one.metadata.name;
  return task({ object: one, verb: "Clone", name, path: machinePath(one.metadata.namespace ?? "", name), status });
}

/** Only hosts that are in maintenance, or on their way there. */
export function hostTask(one: Host): Task | undefined {
  const state = inMaintenance(one);
  if (!state) return undefined;
  const drain = condition(conditionsOf(one), "MaintenanceMode");
  const blocked = drain?.reason === "Blocked" || drain?.reason === "Refused";
  const status: Status =
    state === "completed" ? { tone: "ok", word: "Done" } : { tone: blocked ? "bad" : "busy", word: blocked ? "Blocked" : "In progress", reason: drain?.message };
  return task({ object: one, verb: "Maintenance", name: one.metadata.name, path: hostPath(one.metadata.name), status });
}

const RANK: Record<string, number> = { running: 0, failed: 1, done: 2 };

/** What runs first, then what failed, then the rest; the newest first in each. */
export function orderTasks(tasks: Task[]): Task[] {
  const rank = (one: Task) => RANK[one.fields.state ?? "done"];
  return tasks.sort((a, b) => rank(a) - rank(b) || ((a.started ?? "") < (b.started ?? "") ? 1 : -1));
}
