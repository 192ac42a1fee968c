// Deletes that can be undone, and the objects to create for it. Pure.
//
// Only objects whose definition is all there is to them: a copy that was held in the page is created again.
// Data that is gone (volumes, images, snapshots, backups) and Secrets are not among them.
import { kubectlName, MACHINE, TEMPLATE_VERSION, type Kind } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import { editable } from "./editable.ts";

const DEFINITIONS = new Set([
  "keypairs.harvesterhci.io",
  "virtualmachinetemplates.harvesterhci.io",
  "virtualmachinetemplateversions.harvesterhci.io",
  "schedulevmbackups.harvesterhci.io",
  "network-attachment-definitions.k8s.cni.cncf.io",
  "clusternetworks.network.harvesterhci.io",
  "vlanconfigs.network.harvesterhci.io",
  "ippools.network.harvesterhci.io",
  "ippools.loadbalancer.harvesterhci.io",
  "loadbalancers.loadbalancer.harvesterhci.io",
  "networkpolicies.networking.k8s.io",
  "roles.rbac.authorization.k8s.io",
  "rolebindings.rbac.authorization.k8s.io",
  "clusterroles.rbac.authorization.k8s.io",
  "clusterrolebindings.rbac.authorization.k8s.io",
  "resourcequotas",
  "virtualmachineinstancetypes.instancetype.kubevirt.io",
  "virtualmachineclusterinstancetypes.instancetype.kubevirt.io",
  "virtualmachinepreferences.instancetype.kubevirt.io",
  "virtualmachineclusterpreferences.instancetype.kubevirt.io",
  "alarmreceivers.sheaf.io",
]);

/** Whether an object of the kind can be created again from its definition. */
export function canReturn(kind: Kind, object: KubeObject): boolean {
  const name = kubectlName(kind);
  if (name === kubectlName(MACHINE)) return machineCanReturn(object);
  // An object with an owner is created and deleted by it. Versions of templates get theirs from the controller.
  const owned = (object.metadata.ownerReferences?.length ?? 0) > 0 && name !== kubectlName(TEMPLATE_VERSION);
  return DEFINITIONS.has(name) && !owned;
}

interface MachineParts {
  spec?: {
    dataVolumeTemplates?: unknown[];
    instancetype?: { revisionName?: string };
    preference?: { revisionName?: string };
    template?: { spec?: { domain?: { devices?: { tpm?: { persistent?: boolean } }; firmware?: { bootloader?: { efi?: { persistent?: boolean } } } } } };
  };
}

/** Disks of its own and the states of a TPM and of EFI are removed with a machine, and its pinned revisions as well. */
function machineCanReturn(object: KubeObject): boolean {
  const { dataVolumeTemplates, instancetype, preference, template } = (object as KubeObject & MachineParts).spec ?? {};
  const domain = template?.spec?.domain;
  const state = domain?.devices?.tpm?.persistent || domain?.firmware?.bootloader?.efi?.persistent;
  return !dataVolumeTemplates?.length && !state && !instancetype?.revisionName && !preference?.revisionName && !object.metadata.ownerReferences?.length;
}

/** The Secrets that a machine reads. Those that it owns are removed with it. */
export function secretsOf(machine: KubeObject): string[] {
  const found = new Set<string>();
  const walk = (value: unknown, parent: string) => {
    if (typeof value !== "object" || value === null) return;
    const { secretName, name } = value as { secretName?: unknown; name?: unknown };
    if (typeof secretName === "string") found.add(secretName);
    if (typeof name === "string" && /^(secret|.*[sS]ecretRef)$/.test(parent)) found.add(name);
    for (const [key, inner] of Object.entries(value)) walk(inner, Array.isArray(value) ? parent : key);
  };
  const { template } = (machine as KubeObject & MachineParts).spec ?? {};
  walk(template?.spec, "");
  return [...found];
}

/** The object to create again: without what the server and its controllers wrote. */
export function definitionOf(object: KubeObject): KubeObject {
  const again = editable(object) as unknown as KubeObject;
  const meta = again.metadata as unknown as Record<string, unknown>;
  for (const field of ["finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"]) delete meta[field];
  return again;
}
