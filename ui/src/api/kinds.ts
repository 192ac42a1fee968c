// The kinds that the pages show, and where the API has them.

export interface Kind {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
}

const namespaced = (group: string, version: string, plural: string, kind: string): Kind => ({
  group,
  version,
  plural,
  kind,
  namespaced: true,
});
const cluster = (group: string, version: string, plural: string, kind: string): Kind => ({
  ...namespaced(group, version, plural, kind),
  namespaced: false,
});

export const MACHINE = namespaced("kubevirt.io", "v1", "virtualmachines", "VirtualMachine");
export const INSTANCE = namespaced("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance");
export const MIGRATION = namespaced("kubevirt.io", "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration");
export const SNAPSHOT = namespaced("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", "VirtualMachineSnapshot");
export const RESTORE = namespaced("snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores", "VirtualMachineRestore");
export const CLONE = namespaced("clone.kubevirt.io", "v1beta1", "virtualmachineclones", "VirtualMachineClone");
export const INSTANCE_TYPE = cluster(
  "instancetype.kubevirt.io",
  "v1beta1",
  "virtualmachineclusterinstancetypes",
  "VirtualMachineClusterInstancetype",
);
export const CLAIM = namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
export const VOLUME_SNAPSHOT = namespaced("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot");
export const STORAGE_CLASS = cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");
export const LONGHORN_VOLUME = namespaced("longhorn.io", "v1beta2", "volumes", "Volume");
export const LONGHORN_REPLICA = namespaced("longhorn.io", "v1beta2", "replicas", "Replica");
export const LONGHORN_NODE = namespaced("longhorn.io", "v1beta2", "nodes", "Node");
export const IMAGE = namespaced("harvesterhci.io", "v1beta1", "virtualmachineimages", "VirtualMachineImage");
export const KEY_PAIR = namespaced("harvesterhci.io", "v1beta1", "keypairs", "KeyPair");
export const TEMPLATE = namespaced("harvesterhci.io", "v1beta1", "virtualmachinetemplates", "VirtualMachineTemplate");
export const TEMPLATE_VERSION = namespaced(
  "harvesterhci.io",
  "v1beta1",
  "virtualmachinetemplateversions",
  "VirtualMachineTemplateVersion",
);
export const BACKUP = namespaced("harvesterhci.io", "v1beta1", "virtualmachinebackups", "VirtualMachineBackup");
export const MACHINE_RESTORE = namespaced("harvesterhci.io", "v1beta1", "virtualmachinerestores", "VirtualMachineRestore");
export const BACKUP_SCHEDULE = namespaced("harvesterhci.io", "v1beta1", "schedulevmbackups", "ScheduleVMBackup");
export const SETTING = cluster("harvesterhci.io", "v1beta1", "settings", "Setting");
export const NETWORK = namespaced(
  "k8s.cni.cncf.io",
  "v1",
  "network-attachment-definitions",
  "NetworkAttachmentDefinition",
);
export const CLUSTER_NETWORK = cluster("network.harvesterhci.io", "v1beta1", "clusternetworks", "ClusterNetwork");
export const UPLINK = cluster("network.harvesterhci.io", "v1beta1", "vlanconfigs", "VlanConfig");
export const UPLINK_STATUS = cluster("network.harvesterhci.io", "v1beta1", "vlanstatuses", "VlanStatus");
export const LINK_MONITOR = cluster("network.harvesterhci.io", "v1beta1", "linkmonitors", "LinkMonitor");
/** Addresses that machines get by DHCP. */
export const ADDRESS_POOL = namespaced("network.harvesterhci.io", "v1alpha1", "ippools", "IPPool");
export const BALANCER = namespaced("loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", "LoadBalancer");
/** Addresses of load balancers. */
export const BALANCER_POOL = cluster("loadbalancer.harvesterhci.io", "v1beta1", "ippools", "IPPool");
export const ADDON = namespaced("harvesterhci.io", "v1beta1", "addons", "Addon");
export const CLUSTER_ROLE = cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
export const HOST = cluster("", "v1", "nodes", "Node");
export const NAMESPACE = cluster("", "v1", "namespaces", "Namespace");
export const EVENT = namespaced("", "v1", "events", "Event");
export const SECRET = namespaced("", "v1", "secrets", "Secret");
export const RESOURCE_QUOTA = namespaced("", "v1", "resourcequotas", "ResourceQuota");
export const DATA_VOLUME = namespaced("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume");
export const SUPPORT_BUNDLE = namespaced("harvesterhci.io", "v1beta1", "supportbundles", "SupportBundle");
export const UPGRADE = namespaced("harvesterhci.io", "v1beta1", "upgrades", "Upgrade");
export const ALARM = cluster("sheaf.io", "v1", "alarms", "Alarm");
export const RECEIVER = cluster("sheaf.io", "v1", "alarmreceivers", "AlarmReceiver");
export const REVISION = namespaced("apps", "v1", "controllerrevisions", "ControllerRevision");
export const VERSION = namespaced("harvesterhci.io", "v1beta1", "versions", "Version");
export const ROLE_BINDING = namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding");
export const USER = cluster("management.cattle.io", "v3", "users", "User");
export const CLUSTER_ROLE_BINDING = cluster(
  "rbac.authorization.k8s.io",
  "v1",
  "clusterrolebindings",
  "ClusterRoleBinding",
);

/** The path of a collection, or of an object in it. */
export function pathOf(kind: Kind, namespace = "", name = ""): string {
  const root = kind.group === "" ? `/api/${kind.version}` : `/apis/${kind.group}/${kind.version}`;
  const inside = kind.namespaced && namespace !== "" ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${inside}/${kind.plural}${name === "" ? "" : `/${encodeURIComponent(name)}`}`;
}

/** `virtualmachines.kubevirt.io`, as kubectl calls a kind. */
export function kubectlName(kind: Kind): string {
  return kind.group === "" ? kind.plural : `${kind.plural}.${kind.group}`;
}

const SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces";

/** A subresource of a machine or of its instance. */
export function subresource(kind: Kind, namespace: string, name: string, verb: string): string {
  return `${SUBRESOURCES}/${encodeURIComponent(namespace)}/${kind.plural}/${encodeURIComponent(name)}/${verb}`;
}
