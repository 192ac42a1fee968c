// Projects are namespaces: who works in one, and how much it may use.
import type { ResourceQuota, RoleBinding } from "../api/types.ts";
import { formatBytes, parseQuantity } from "./quantity.ts";

/** The roles that are given in a project, from less to more. */
export const PROJECT_ROLES: [role: string, label: string][] = [
  ["view", "Read only"],
  ["edit", "Operator: machines, volumes, images"],
  ["admin", "Administrator of the project: members as well"],
];

export interface Member {
  kind: string;
  name: string;
  role: string;
  binding: RoleBinding;
}

/** Users and groups with a role in a project; accounts of programs are left out. */
export function membersOf(bindings: Iterable<RoleBinding>): Member[] {
  const found: Member[] = [];
  for (const binding of bindings) {
    for (const subject of binding.subjects ?? []) {
      if (subject.kind !== "User" && subject.kind !== "Group") continue;
      found.push({ kind: subject.kind, name: subject.name, role: binding.roleRef.name, binding });
    }
  }
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** What a quota of the page limits, and how it is asked for. */
export const LIMITS: { id: string; label: string; unit: string; suffix: string }[] = [
  { id: "limits.cpu", label: "Processors of running machines", unit: "cores", suffix: "" },
  { id: "limits.memory", label: "Memory of running machines", unit: "Gi", suffix: "Gi" },
  { id: "requests.storage", label: "Size of volumes", unit: "Gi", suffix: "Gi" },
  { id: "count/virtualmachines.kubevirt.io", label: "Machines", unit: "", suffix: "" },
];

export interface QuotaLine {
  id: string;
  label: string;
  used: number;
  hard: number;
  text: string;
}

/** What is used of what is allowed, over all quotas of a project. */
export function quotaLines(quotas: Iterable<ResourceQuota>): QuotaLine[] {
  return [...quotas].flatMap((quota) => {
    const used = (quota.status?.used ?? {}) as Record<string, string>;
    const hard = (quota.spec?.hard ?? {}) as Record<string, string>;
    return Object.entries(hard).map(([id, limit]) => {
      const bytes = /memory|storage/.test(id);
      const show = (value: number) => (bytes ? formatBytes(value) : String(value));
      const [now, most] = [parseQuantity(used[id]) || 0, parseQuantity(limit)];
      const label = LIMITS.find((one) => one.id === id)?.label ?? id;
      return { id: `${quota.metadata.name} ${id}`, label, used: now, hard: most, text: `${show(now)} / ${show(most)}` };
    });
  });
}

/** The limits of a quota from the fields of a form; empty fields are no limit. */
export function hardOf(fields: Record<string, string>): Record<string, string> {
  const given = LIMITS.filter((one) => fields[one.id]?.trim());
  return Object.fromEntries(given.map((one) => [one.id, `${fields[one.id].trim()}${one.suffix}`]));
}

/** The fields of a form from the limits of a quota. */
export function fieldsOf(quota: ResourceQuota | undefined): Record<string, string> {
  const hard = (quota?.spec?.hard ?? {}) as Record<string, string>;
  return Object.fromEntries(
    LIMITS.map((one) => {
      const value = parseQuantity(hard[one.id]);
      const shown = Number.isNaN(value) ? "" : String(one.suffix === "Gi" ? value / 2 ** 30 : value);
      return [one.id, shown];
    }),
  );
}
