// The state of hosts and of their disks.
import { condition, type Condition, type KubeObject } from "../api/objects.ts";
import type { Host } from "../api/types.ts";
import type { Status } from "./status.ts";

export const conditionsOf = (host: Host): Condition[] => (host.status?.conditions ?? []) as Condition[];

/** Whether maintenance is requested, under way or complete; nothing if the host is in use. */
export function inMaintenance(host: Host): "running" | "completed" | undefined {
  const { annotations = {} } = host.metadata;
  if (annotations["harvesterhci.io/maintain-status"] === "completed") return "completed";
  return annotations["harvesterhci.io/maintain-status"] || annotations["harvesterhci.io/drain-requested"] ? "running" : undefined;
}

export function hostStatus(host: Host): Status {
  const ready = condition(conditionsOf(host), "Ready");
  if (ready?.status !== "True") return { tone: "bad", word: "Not ready", reason: ready?.message };
  const drain = condition(conditionsOf(host), "MaintenanceMode");
  switch (inMaintenance(host)) {
    case "completed":
      return { tone: "warn", word: "In maintenance", reason: drain?.message };
    case "running":
      return drain?.reason === "Blocked" || drain?.reason === "Refused"
        ? { tone: "bad", word: "Maintenance blocked", reason: drain.message }
        : { tone: "busy", word: "Machines are leaving", reason: drain?.message };
    default:
  }
  return host.spec?.unschedulable ? { tone: "warn", word: "Cordoned" } : { tone: "ok", word: "Ready" };
}

/** Most conditions are good when they are true; pressure is not. */
export function conditionTone(one: Condition): Status["tone"] {
  if (/Pressure$|Unavailable$/.test(one.type)) return one.status === "True" ? "bad" : "ok";
  if (one.type === "MaintenanceMode") return one.status === "True" ? "warn" : "off";
  if (one.type === "Ready") return one.status === "True" ? "ok" : "bad";
  return one.status === "True" ? "ok" : "off";
}

/** Longhorn's node, whose generated type would be called as the host's. */
export interface StorageNode extends KubeObject {
  spec?: { allowScheduling?: boolean; disks?: Record<string, { path?: string; allowScheduling?: boolean; evictionRequested?: boolean; storageReserved?: number; tags?: string[] }> };
  status?: {
    diskStatus?: Record<string, { conditions?: Condition[]; storageAvailable?: number; storageMaximum?: number; storageScheduled?: number; scheduledReplica?: Record<string, number>; diskPath?: string }>;
  };
}

export interface DiskRow {
  name: string;
  path: string;
  status: Status;
  used: number;
  size: number;
  scheduled: number;
  replicas: number;
  tags: string[];
}

/** The disks of a host that hold copies of volumes. */
export function diskRows(node: StorageNode | undefined): DiskRow[] {
  const wanted = node?.spec?.disks ?? {};
  return Object.entries(wanted).map(([name, spec]) => {
    const seen = node?.status?.diskStatus?.[name];
    const [ready, schedulable] = [condition(seen?.conditions, "Ready"), condition(seen?.conditions, "Schedulable")];
    const size = seen?.storageMaximum ?? 0;
    return {
      name, path: spec.path ?? seen?.diskPath ?? "", size, used: size - (seen?.storageAvailable ?? size),
      scheduled: seen?.storageScheduled ?? 0, replicas: Object.keys(seen?.scheduledReplica ?? {}).length, tags: spec.tags ?? [],
      status: diskStatus(spec, ready, schedulable),
    };
  });
}

function diskStatus(spec: { allowScheduling?: boolean; evictionRequested?: boolean }, ready?: Condition, schedulable?: Condition): Status {
  if (!ready) return { tone: "busy", word: "Pending" };
  if (ready.status !== "True") return { tone: "bad", word: "Not ready", reason: ready.message };
  if (spec.evictionRequested) return { tone: "busy", word: "Copies are leaving" };
  if (!spec.allowScheduling) return { tone: "warn", word: "No new copies" };
  return schedulable?.status === "False" ? { tone: "warn", word: "Full", reason: schedulable.message } : { tone: "ok", word: "Ready" };
}
