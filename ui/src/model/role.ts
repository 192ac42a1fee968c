// Roles as people read them, and the objects that the form creates. Pure.
import type { ClusterRole } from "../api/types.ts";

interface Rule {
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
  nonResourceURLs?: string[];
  verbs: string[];
}

/** Roles with this label can be given in projects. */
export const PROJECT_ROLE_LABEL = "sheaf.io/project-role";

const READ = ["get", "list", "watch"];
const WRITE = ["create", "update", "patch", "delete"];
const rule = (group: string, resources: string[], verbs: string[]): Rule => ({ apiGroups: [group], resources, verbs });

const MACHINES = ["virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"];
const SNAPSHOTS = ["virtualmachinesnapshots", "virtualmachinesnapshotcontents", "virtualmachinerestores"];

/** Sets of rules with a name, from which a role is composed. */
export const PERMISSIONS: { id: string; label: string; rules: Rule[] }[] = [
  {
    id: "see", label: "See machines, volumes, images and networks",
    rules: [
      rule("kubevirt.io", MACHINES, READ),
      rule("snapshot.kubevirt.io", SNAPSHOTS, READ),
      rule("harvesterhci.io", ["virtualmachineimages", "virtualmachinetemplates", "virtualmachinetemplateversions", "keypairs", "virtualmachinebackups"], READ),
      rule("cdi.kubevirt.io", ["datavolumes"], READ),
      rule("k8s.cni.cncf.io", ["network-attachment-definitions"], READ),
      rule("", ["persistentvolumeclaims", "events", "resourcequotas"], READ),
      rule("subresources.kubevirt.io", ["virtualmachineinstances/guestosinfo", "virtualmachineinstances/filesystemlist", "virtualmachineinstances/userlist"], ["get"]),
      rule("metrics.sheaf.io", ["virtualmachineinstances/series"], ["get"]),
    ],
  },
  {
    id: "power", label: "Start, stop, restart and pause machines",
    rules: [rule("subresources.kubevirt.io", ["virtualmachines/start", "virtualmachines/stop", "virtualmachines/restart", "virtualmachineinstances/pause", "virtualmachineinstances/unpause", "virtualmachineinstances/softreboot", "virtualmachineinstances/reset"], ["update"])],
  },
  { id: "console", label: "Open screens and consoles of machines", rules: [rule("subresources.kubevirt.io", ["virtualmachineinstances/console", "virtualmachineinstances/vnc", "virtualmachineinstances/vnc/screenshot"], ["get"])] },
  { id: "connect", label: "Connect to ports of machines", rules: [rule("subresources.kubevirt.io", ["virtualmachineinstances/portforward", "virtualmachines/portforward"], ["get"])] },
  {
    id: "machines", label: "Create, change and delete machines and their disks",
    rules: [
      rule("kubevirt.io", ["virtualmachines"], WRITE),
      rule("clone.kubevirt.io", ["virtualmachineclones"], [...READ, ...WRITE]),
      rule("cdi.kubevirt.io", ["datavolumes"], WRITE),
      rule("", ["persistentvolumeclaims"], WRITE),
      rule("", ["secrets"], ["create"]),
      rule("subresources.kubevirt.io", ["virtualmachines/addvolume", "virtualmachines/removevolume"], ["update"]),
    ],
  },
  { id: "migrate", label: "Move machines to other hosts", rules: [rule("kubevirt.io", ["virtualmachineinstancemigrations"], WRITE), rule("subresources.kubevirt.io", ["virtualmachines/migrate"], ["update"])] },
  { id: "snapshots", label: "Take and restore snapshots", rules: [rule("snapshot.kubevirt.io", ["virtualmachinesnapshots", "virtualmachinerestores"], WRITE)] },
  { id: "backups", label: "Make and restore backups", rules: [rule("harvesterhci.io", ["virtualmachinebackups", "virtualmachinerestores", "schedulevmbackups"], [...READ, ...WRITE])] },
  { id: "images", label: "Import, upload and delete images", rules: [rule("harvesterhci.io", ["virtualmachineimages"], WRITE)] },
  { id: "templates", label: "Change templates and SSH keys", rules: [rule("harvesterhci.io", ["virtualmachinetemplates", "virtualmachinetemplateversions", "keypairs"], WRITE)] },
];

/** Roles of the platform that are given to people. */
export const SHIPPED = ["cluster-admin", "admin", "edit", "view"];

const INTERNAL = /^(system:|cluster-owner$|cattle-|harvesterhci\.io:|kubevirt\.io:|cdi\.kubevirt\.io:|longhorn|instancetype\.kubevirt\.io:)/;

/** Roles that are given to people; the others belong to parts of the platform, or are parts of shipped roles. */
export function isForPeople({ metadata: { labels, name } }: ClusterRole): boolean {
  const isPart = Object.keys(labels ?? {}).some((label) => label.startsWith("rbac.authorization.k8s.io/aggregate-to-"));
  return SHIPPED.includes(name) || (!INTERNAL.test(name) && !isPart);
}

export const isProjectRole = (role: ClusterRole): boolean => role.metadata.labels?.[PROJECT_ROLE_LABEL] === "true";

const named = (rule: Rule): string => (rule.resourceNames?.length ? ` ${rule.resourceNames.join(", ")}` : "");

/** A rule as a line: `get, list: virtualmachines (kubevirt.io)`. */
export function ruleText(rule: Rule): string {
  const verbs = rule.verbs.includes("*") ? "everything" : rule.verbs.join(", ");
  if (rule.nonResourceURLs?.length) return `${verbs}: ${rule.nonResourceURLs.join(", ")}`;
  const groups = (rule.apiGroups ?? []).filter((group) => group !== "");
  const resources = rule.resources?.includes("*") ? "all resources" : (rule.resources ?? []).join(", ");
  return `${verbs}: ${resources}${named(rule)}${groups.length > 0 ? ` (${groups.map((group) => (group === "*" ? "all groups" : group)).join(", ")})` : ""}`;
}

const keyOf = (one: Rule): string => JSON.stringify([one.apiGroups, one.resources, one.verbs]);

/** The permissions of which all rules are in a role. */
export function permissionsOf(role: ClusterRole): string[] {
  const own = new Set((role.rules ?? []).map(keyOf));
  return PERMISSIONS.filter((one) => one.rules.every((part) => own.has(keyOf(part)))).map((one) => one.id);
}

/** Rules that belong to none of the permissions of a role: the form keeps them. */
export function otherRules(role: ClusterRole): Rule[] {
  const known = new Set(PERMISSIONS.filter((one) => permissionsOf(role).includes(one.id)).flatMap((one) => one.rules.map(keyOf)));
  return (role.rules ?? []).filter((one) => !known.has(keyOf(one)));
}

export function rulesOf(permissions: string[], others: Rule[]): Rule[] {
  return [...PERMISSIONS.filter((one) => permissions.includes(one.id)).flatMap((one) => one.rules), ...others];
}

export function roleObject(name: string, rules: Rule[]): Record<string, unknown> {
  return { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name, labels: { [PROJECT_ROLE_LABEL]: "true" } }, rules };
}

export interface AccessQuestion {
  user: string;
  groups: string;
  verb: string;
  group: string;
  resource: string;
  namespace: string;
}

/** A review for one question; a resource may name a subresource: `virtualmachines/start`. */
export function accessReview(question: AccessQuestion): Record<string, unknown> {
  const [resource, subresource] = question.resource.split(/\/(.*)/s);
  const groups = question.groups.split(/[\s,]+/).filter((one) => one !== "");
  const { group, namespace, verb } = question;
  return {
    apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview",
    spec: { user: question.user, groups: ["system:authenticated", ...groups], resourceAttributes: { verb, group, resource, ...(subresource ? { subresource } : {}), ...(namespace ? { namespace } : {}) } },
  };
}
