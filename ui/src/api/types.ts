// The objects that pages read, by the types that scripts/types.mjs generates from the server's
// OpenAPI documents.
import type { Read } from "./objects.ts";
import type * as generated from "./types.gen.ts";

export type Machine = Read<generated.VirtualMachine>;
export type Instance = Read<generated.VirtualMachineInstance>;
export type Migration = Read<generated.VirtualMachineInstanceMigration>;
export type MachineBackup = Read<generated.VirtualMachineBackup>;
export type BackupSchedule = Read<generated.ScheduleVMBackup>;
export type MachineSnapshot = Read<generated.VirtualMachineSnapshot>;
export type MachineRestore = Read<generated.VirtualMachineRestore>;
export type InstanceType = Read<generated.VirtualMachineClusterInstancetype>;
export type Image = Read<generated.VirtualMachineImage>;
export type KeyPair = Read<generated.KeyPair>;
export type Template = Read<generated.VirtualMachineTemplate>;
export type TemplateVersion = Read<generated.VirtualMachineTemplateVersion>;
export type Setting = Read<generated.Setting>;
export type LonghornVolume = Read<generated.Volume>;
export type LonghornReplica = Read<generated.Replica>;
export type VolumeSnapshot = Read<generated.VolumeSnapshot>;
export type Claim = Read<generated.PersistentVolumeClaim>;
export type StorageClass = Read<generated.StorageClass>;
export type Host = Read<generated.Node>;
export type KubeEvent = Read<generated.Event>;
export type Namespace = Read<generated.Namespace>;
export type ResourceQuota = Read<generated.ResourceQuota>;
export type RoleBinding = Read<generated.RoleBinding>;
export type SupportBundle = Read<generated.SupportBundle>;
export type Upgrade = Read<generated.Upgrade>;
export type Alarm = Read<generated.Alarm>;
export type LocalUser = Read<generated.User>;
export type ClusterRoleBinding = Read<generated.ClusterRoleBinding>;
export type Network = Read<generated.NetworkAttachmentDefinition>;
