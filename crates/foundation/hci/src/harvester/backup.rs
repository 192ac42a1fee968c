//! Backups and snapshots of whole machines, their schedules, and what is restored from them.

use crd::atom::{Any, Map, ObjectMeta, PersistentVolumeClaimSpec, TypedLocalObjectReference};
use crd::record::record;

use super::{Condition, Fault};

record! {
    VirtualMachineBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineBackupSpec,
        /// What is observed.
        status: Option<VirtualMachineBackupStatus>,
    }

    VirtualMachineBackupSpec {
        /// What it is made of.
        source: TypedLocalObjectReference,
        /// backup or snapshot.
        r#type: Option<String> = {"default": "backup", "enum": ["backup", "snapshot"]},
        /// How long the guest's file systems may stay frozen: `5m`.
        fs_freeze_deadline: Option<String>,
        /// Whether the memory of a guest that runs belongs to a snapshot, so that a machine that
        /// is restored goes on where it was. Not a field of Harvester's.
        memory: Option<bool>,
    }

    /// Where backups are kept.
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
        /// When it was created.
        creation_time: Option<String>,
        /// Where the backup is stored.
        backup_target: Option<BackupTarget>,
        /// Snapshot classes, by driver.
        csi_driver_volume_snapshot_class_names: Map<String>,
        /// What it is made of.
        source: Option<BackupSource>,
        /// Volumes of the snapshot.
        volume_backups: Vec<VolumeBackup>,
        /// Secrets in the backup.
        secret_backups: Vec<SecretBackup>,
        /// Progress in percent.
        progress: Option<i32>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Why it failed.
        error: Option<Fault>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    /// The machine as it was.
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
        /// Driver of the volume.
        csi_driver_name: Option<String>,
        /// The claim of the volume.
        persistent_volume_claim: Option<ClaimSource>,
        /// Backup of the volume in Longhorn.
        longhorn_backup_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<i64>,
        /// Progress in percent.
        progress: Option<i32>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// When it was created.
        creation_time: Option<String>,
        /// Why it failed.
        error: Option<Fault>,
    }

    ClaimSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the claim.
        spec: Option<PersistentVolumeClaimSpec>,
    }

    SecretBackup {
        /// Name of the secret.
        name: String,
        /// Texts in base64.
        data: Map<String>,
    }

    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineRestoreSpec,
        /// What is observed.
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        /// The virtual machine that is restored or created.
        target: TypedLocalObjectReference,
        /// Name of the backup.
        virtual_machine_backup_name: String,
        /// Namespace of the backup.
        virtual_machine_backup_namespace: String,
        /// Create a new virtual machine instead of replacing one.
        new_vm as "newVM": Option<bool>,
        /// What becomes of the volumes that were replaced.
        deletion_policy: Option<String> = {"default": "delete", "enum": ["delete", "retain"]},
        /// Keep the MAC addresses.
        keep_mac_address: Option<bool>,
        /// Leave the virtual machine stopped.
        halt_after_restore: Option<bool>,
    }

    VirtualMachineRestoreStatus {
        /// Volumes that are restored.
        restores: Vec<VolumeRestore>,
        /// When the restore was complete.
        restore_time: Option<String>,
        /// Volumes that were replaced.
        deleted_volumes: Vec<String>,
        /// The restore is complete.
        complete: Option<bool>,
        /// Progress in percent.
        progress: Option<i32>,
        /// UID of the restored virtual machine.
        target_uid as "targetUID": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    VolumeRestore {
        /// Name of the volume.
        volume_name: Option<String>,
        /// The claim of the volume.
        persistent_volume_claim_spec: Option<ClaimSource>,
        /// Backup of the volume.
        volume_backup_name: Option<String>,
        /// Engine of the volume.
        longhorn_engine_name: Option<String>,
        /// Progress in percent.
        progress: Option<i32>,
        /// Size of the volume in bytes.
        volume_size: Option<i64>,
    }

    ScheduleVMBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: ScheduleVMBackupSpec,
        /// What is observed.
        status: Option<ScheduleVMBackupStatus>,
    }

    ScheduleVMBackupSpec {
        /// Schedule of the job, as a cron expression.
        cron: String,
        /// How many snapshots or backups are kept.
        retain: Option<i32> = {"default": 8, "minimum": 2, "maximum": 250},
        /// Failed backups in a row until the schedule is suspended.
        max_failure: Option<i32> = {"default": 4, "minimum": 2},
        /// No backups are made.
        suspend: Option<bool> = {"default": false},
        /// The backups that are made.
        vmbackup: VirtualMachineBackupSpec,
    }

    ScheduleVMBackupStatus {
        /// Backups that were made.
        vmbackup_info: Vec<Any>,
        /// Failed backups in a row.
        failure: Option<i32>,
        /// No backups are made.
        suspended: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    VolumeRemoteBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VolumeRemoteBackupSpec,
        /// What is observed.
        status: Option<VolumeRemoteBackupStatus>,
    }

    VolumeRemoteBackupSpec {
        /// Where the backup is stored.
        r#type: String,
        /// The claim whose volume is saved.
        source: String,
    }

    VolumeRemoteBackupStatus {
        /// Backup in the storage system.
        handle: Option<String>,
        /// Driver of the volume.
        csi_provider: Option<String>,
        /// The claim that was backed up.
        source_spec: Option<PersistentVolumeClaimSpec>,
        /// It has succeeded.
        success: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    VolumeRemoteRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VolumeRemoteRestoreSpec,
        /// What is observed.
        status: Option<VolumeRemoteRestoreStatus>,
    }

    VolumeRemoteRestoreSpec {
        /// Where the backup is stored.
        r#type: String,
        /// Backup that is restored.
        from: String,
    }

    VolumeRemoteRestoreStatus {
        /// It has succeeded.
        success: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }
}
