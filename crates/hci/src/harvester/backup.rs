//! Backups and snapshots of whole machines, their schedules, and what is restored from them.

use crd::atom::{Any, Map, ObjectMeta, PersistentVolumeClaimSpec, TypedLocalObjectReference};
use crd::record::record;

use super::{Condition, Fault};

record! {
    VirtualMachineBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineBackupSpec,
        status: Option<VirtualMachineBackupStatus>,
    }

    VirtualMachineBackupSpec {
        source: TypedLocalObjectReference,
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
        source_uid as "sourceUID": Option<String>,
        creation_time: Option<String>,
        backup_target: Option<BackupTarget>,
        csi_driver_volume_snapshot_class_names: Map<String>,
        source: Option<BackupSource>,
        volume_backups: Vec<VolumeBackup>,
        secret_backups: Vec<SecretBackup>,
        progress: Option<i32>,
        ready_to_use: Option<bool>,
        error: Option<Fault>,
        conditions: Vec<Condition>,
    }

    /// The machine as it was.
    BackupSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        spec: Option<Any>,
    }

    VolumeBackup {
        name: Option<String>,
        volume_name: String,
        csi_driver_name: Option<String>,
        persistent_volume_claim: Option<ClaimSource>,
        longhorn_backup_name: Option<String>,
        volume_size: Option<i64>,
        progress: Option<i32>,
        ready_to_use: Option<bool>,
        creation_time: Option<String>,
        error: Option<Fault>,
    }

    ClaimSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        spec: Option<PersistentVolumeClaimSpec>,
    }

    SecretBackup {
        name: String,
        /// Texts in base64.
        data: Map<String>,
    }

    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineRestoreSpec,
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        target: TypedLocalObjectReference,
        virtual_machine_backup_name: String,
        virtual_machine_backup_namespace: String,
        new_vm as "newVM": Option<bool>,
        /// What becomes of the volumes that were replaced.
        deletion_policy: Option<String> = {"default": "delete", "enum": ["delete", "retain"]},
        keep_mac_address: Option<bool>,
        halt_after_restore: Option<bool>,
    }

    VirtualMachineRestoreStatus {
        restores: Vec<VolumeRestore>,
        restore_time: Option<String>,
        deleted_volumes: Vec<String>,
        complete: Option<bool>,
        progress: Option<i32>,
        target_uid as "targetUID": Option<String>,
        conditions: Vec<Condition>,
    }

    VolumeRestore {
        volume_name: Option<String>,
        persistent_volume_claim_spec: Option<ClaimSource>,
        volume_backup_name: Option<String>,
        longhorn_engine_name: Option<String>,
        progress: Option<i32>,
        volume_size: Option<i64>,
    }

    ScheduleVMBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: ScheduleVMBackupSpec,
        status: Option<ScheduleVMBackupStatus>,
    }

    ScheduleVMBackupSpec {
        cron: String,
        retain: Option<i32> = {"default": 8, "minimum": 2, "maximum": 250},
        max_failure: Option<i32> = {"default": 4, "minimum": 2},
        suspend: Option<bool> = {"default": false},
        vmbackup: VirtualMachineBackupSpec,
    }

    ScheduleVMBackupStatus {
        vmbackup_info: Vec<Any>,
        failure: Option<i32>,
        suspended: Option<bool>,
        conditions: Vec<Condition>,
    }

    VolumeRemoteBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeRemoteBackupSpec,
        status: Option<VolumeRemoteBackupStatus>,
    }

    VolumeRemoteBackupSpec {
        r#type: String,
        /// The claim whose volume is saved.
        source: String,
    }

    VolumeRemoteBackupStatus {
        handle: Option<String>,
        csi_provider: Option<String>,
        source_spec: Option<PersistentVolumeClaimSpec>,
        success: Option<bool>,
        conditions: Vec<Condition>,
    }

    VolumeRemoteRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeRemoteRestoreSpec,
        status: Option<VolumeRemoteRestoreStatus>,
    }

    VolumeRemoteRestoreSpec {
        r#type: String,
        from: String,
    }

    VolumeRemoteRestoreStatus {
        success: Option<bool>,
        conditions: Vec<Condition>,
    }
}
