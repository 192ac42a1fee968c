//! Backups and snapshots of whole machines, their schedules, and what is restored from them.

use crd::atom::{Any, Map, ObjectMeta, PersistentVolumeClaimSpec, TypedLocalObjectReference};
use crd::record::record;

use super::{Condition, Fault};

record! {
    /// Backup or snapshot of a machine and its volumes.
    VirtualMachineBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup or snapshot: its source and type.
        spec: VirtualMachineBackupSpec,
        /// Observed progress and content of the backup or snapshot.
        status: Option<VirtualMachineBackupStatus>,
    }

    VirtualMachineBackupSpec {
        /// VirtualMachine that is backed up.
        source: TypedLocalObjectReference,
        /// Type of the object: backup is stored in the backup target, snapshot in the cluster.
        r#type: Option<String> = {"default": "backup", "enum": ["backup", "snapshot"]},
        /// Longest time that the file systems of the guest may stay frozen, for example `5m`.
        fs_freeze_deadline: Option<String>,
        /// Whether a snapshot includes the memory of a running guest, so that a restored machine
        /// continues from that point. Extension of the Harvester API.
        memory: Option<bool>,
    }

    /// Backup target that backups are stored in.
    BackupTarget {
        /// URL of the backup target.
        endpoint: Option<String>,
        /// Name of the S3 bucket.
        bucket_name: Option<String>,
        /// Region of the S3 bucket.
        bucket_region: Option<String>,
    }

    VirtualMachineBackupStatus {
        /// UID of the source.
        source_uid as "sourceUID": Option<String>,
        /// When the backup or snapshot was taken.
        creation_time: Option<String>,
        /// Backup target that stores the backup.
        backup_target: Option<BackupTarget>,
        /// Name of the VolumeSnapshotClass, by CSI driver.
        csi_driver_volume_snapshot_class_names: Map<String>,
        /// VirtualMachine as it was when the backup was taken.
        source: Option<BackupSource>,
        /// Backups or snapshots of the volumes of the virtual machine.
        volume_backups: Vec<VolumeBackup>,
        /// Copies of the Secrets that the virtual machine refers to.
        secret_backups: Vec<SecretBackup>,
        /// Progress of the backup in percent.
        progress: Option<i32>,
        /// Whether the backup is complete and can be restored.
        ready_to_use: Option<bool>,
        /// Error of the backup, if it failed.
        error: Option<Fault>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    /// VirtualMachine as it was when the backup was taken.
    BackupSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the virtual machine.
        spec: Option<Any>,
    }

    VolumeBackup {
        /// Name of the volume backup.
        name: Option<String>,
        /// Name of the volume.
        volume_name: String,
        /// CSI driver of the volume.
        csi_driver_name: Option<String>,
        /// PersistentVolumeClaim of the volume as it was when the backup was taken.
        persistent_volume_claim: Option<ClaimSource>,
        /// Name of the Backup object of Longhorn.
        longhorn_backup_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<i64>,
        /// Progress of the volume backup in percent.
        progress: Option<i32>,
        /// Whether the volume backup is complete and can be restored.
        ready_to_use: Option<bool>,
        /// When the volume backup was created.
        creation_time: Option<String>,
        /// Error of the volume backup, if it failed.
        error: Option<Fault>,
    }

    ClaimSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the PersistentVolumeClaim.
        spec: Option<PersistentVolumeClaimSpec>,
    }

    SecretBackup {
        /// Name of the secret.
        name: String,
        /// Values of the Secret, encoded in Base64.
        data: Map<String>,
    }

    /// Restore of a backup or snapshot into a new or the same machine.
    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired restore: the backup and its target.
        spec: VirtualMachineRestoreSpec,
        /// Observed progress of the restore.
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        /// The virtual machine that is restored or created.
        target: TypedLocalObjectReference,
        /// Name of the backup.
        virtual_machine_backup_name: String,
        /// Namespace of the backup.
        virtual_machine_backup_namespace: String,
        /// Whether a new virtual machine is created instead of replacing the target.
        new_vm as "newVM": Option<bool>,
        /// Whether the replaced volumes are deleted or retained.
        deletion_policy: Option<String> = {"default": "delete", "enum": ["delete", "retain"]},
        /// Whether a new virtual machine keeps the MAC addresses of the source.
        keep_mac_address: Option<bool>,
        /// Whether the virtual machine stays stopped after the restore.
        halt_after_restore: Option<bool>,
    }

    VirtualMachineRestoreStatus {
        /// Restored volumes of the virtual machine.
        restores: Vec<VolumeRestore>,
        /// When the restore was completed.
        restore_time: Option<String>,
        /// Names of the claims that were replaced by restored ones.
        deleted_volumes: Vec<String>,
        /// Whether the restore is complete.
        complete: Option<bool>,
        /// Progress of the restore in percent.
        progress: Option<i32>,
        /// UID of the restored virtual machine.
        target_uid as "targetUID": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    VolumeRestore {
        /// Name of the volume.
        volume_name: Option<String>,
        /// PersistentVolumeClaim that is created for the volume.
        persistent_volume_claim_spec: Option<ClaimSource>,
        /// Name of the volume backup that is restored.
        volume_backup_name: Option<String>,
        /// Name of the Longhorn engine of the volume.
        longhorn_engine_name: Option<String>,
        /// Progress of the volume restore in percent.
        progress: Option<i32>,
        /// Size of the volume in bytes.
        volume_size: Option<i64>,
    }

    /// Schedule of backups or snapshots of a machine.
    ScheduleVMBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired schedule and content of the backups.
        spec: ScheduleVMBackupSpec,
        /// Observed backups and failures of the schedule.
        status: Option<ScheduleVMBackupStatus>,
    }

    ScheduleVMBackupSpec {
        /// Schedule of the backups, as a cron expression.
        cron: String,
        /// Number of backups or snapshots that are kept; older ones are deleted.
        retain: Option<i32> = {"default": 8, "minimum": 2, "maximum": 250},
        /// Number of consecutive failed backups after which the schedule is suspended.
        max_failure: Option<i32> = {"default": 4, "minimum": 2},
        /// Whether the schedule is suspended; no backups are created then.
        suspend: Option<bool> = {"default": false},
        /// Specification of the VirtualMachineBackup objects that are created.
        vmbackup: VirtualMachineBackupSpec,
    }

    ScheduleVMBackupStatus {
        /// Backups that the schedule created, with their state.
        vmbackup_info: Vec<Any>,
        /// Number of consecutive failed backups.
        failure: Option<i32>,
        /// Whether the schedule is suspended.
        suspended: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    /// Backup of a volume on another kind of target.
    VolumeRemoteBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup of one volume.
        spec: VolumeRemoteBackupSpec,
        /// Observed result of the volume backup.
        status: Option<VolumeRemoteBackupStatus>,
    }

    VolumeRemoteBackupSpec {
        /// Type of the backup target that stores the backup.
        r#type: String,
        /// Name of the PersistentVolumeClaim that is backed up.
        source: String,
    }

    VolumeRemoteBackupStatus {
        /// Identifier of the backup in the storage system.
        handle: Option<String>,
        /// CSI driver of the volume.
        csi_provider: Option<String>,
        /// Specification of the PersistentVolumeClaim that was backed up.
        source_spec: Option<PersistentVolumeClaimSpec>,
        /// Whether the backup succeeded.
        success: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    /// Restore of a backup of a volume from another kind of target.
    VolumeRemoteRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired restore of one volume.
        spec: VolumeRemoteRestoreSpec,
        /// Observed result of the volume restore.
        status: Option<VolumeRemoteRestoreStatus>,
    }

    VolumeRemoteRestoreSpec {
        /// Type of the backup target that stores the backup.
        r#type: String,
        /// Name of the VolumeRemoteBackup that is restored.
        from: String,
    }

    VolumeRemoteRestoreStatus {
        /// Whether the restore succeeded.
        success: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }
}
