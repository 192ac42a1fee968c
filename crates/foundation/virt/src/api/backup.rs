//! `backup.kubevirt.io`: backups of machines to claims. Nothing acts on them yet.

use crate::api::atom::{Duration, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    /// Backup of the disks of a machine, complete or of the blocks that changed.
    VirtualMachineBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup: its source, mode and destination.
        spec: VirtualMachineBackupSpec,
        /// Observed progress of the backup.
        status: Option<VirtualMachineBackupStatus>,
    }

    VirtualMachineBackupSpec: {"x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "spec is immutable after creation"},
        {"rule": "has(self.pvcName) && self.pvcName != \"\"", "message": "pvcName is required"}
    ]} {
        /// VirtualMachine to back up, or VirtualMachineBackupTracker for incremental backups.
        source: TypedLocalObjectReference,
        /// Mode of the backup: Push writes it to a PersistentVolumeClaim, Pull offers it for
        /// download.
        mode: Option<String> = {"enum": ["Push", "Pull"]},
        /// Name of the PersistentVolumeClaim that the backup is written to.
        pvc_name: Option<String>,
        /// Whether the file systems of the guest are not frozen during the backup.
        skip_quiesce: Option<bool>,
        /// Whether all data is backed up instead of only the blocks changed since the last backup.
        force_full_backup: Option<bool>,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// Time for which the backup can be downloaded.
        ttl_duration: Option<Duration>,
    }

    VirtualMachineBackupStatus {
        /// Type of the backup: Full or Incremental.
        r#type: Option<String>,
        /// Conditions of the backup: Complete, Failed, Progressing and Quiesced.
        conditions: Vec<BackupCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
        /// Name of the checkpoint that the backup created.
        checkpoint_name: Option<String>,
        /// Certificate of the download server, PEM.
        endpoint_cert: Option<String>,
        /// Volumes that the backup includes.
        included_volumes: Vec<BackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// UID of the export that offers the backup for download.
        export_uid as "exportUID": Option<String>,
    }

    BackupCondition {
        /// Type of the condition.
        r#type: String,
        /// Status of the condition: True, False or Unknown.
        status: String = {"enum": ["True", "False", "Unknown"]},
        /// Generation of the object that the condition was computed from.
        observed_generation: Option<i64>,
        /// When the status of the condition last changed.
        last_transition_time: Time,
        /// Reason of the last status change as one CamelCase word, for programs.
        reason: String,
        /// Human-readable details of the condition.
        message: Option<String>,
    }

    BackupVolumeInfo {
        /// Name of the volume.
        volume_name: String,
        /// URL to download the data from.
        data_endpoint: Option<String>,
        /// URL of the map of changed blocks.
        map_endpoint: Option<String>,
    }

    /// Checkpoint of the last backup, on which the next incremental one is based.
    VirtualMachineBackupTracker {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired VirtualMachine whose backups are tracked.
        spec: VirtualMachineBackupTrackerSpec,
        /// Observed checkpoint of the latest backup.
        status: Option<VirtualMachineBackupTrackerStatus>,
    }

    VirtualMachineBackupTrackerSpec: {"x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "spec is immutable after creation"}
    ]} {
        /// VirtualMachine whose backups are tracked.
        source: TypedLocalObjectReference,
    }

    VirtualMachineBackupTrackerStatus {
        /// Checkpoint of the latest backup, which the next incremental backup is based on.
        latest_checkpoint: Option<BackupCheckpoint>,
        /// Whether the checkpoint has to be defined again after a restart of the guest.
        checkpoint_redefinition_required: Option<bool>,
    }

    BackupCheckpoint {
        /// Name of the checkpoint.
        name: Option<String>,
        /// When the checkpoint was created.
        creation_time: Option<Time>,
        /// Volumes that the checkpoint includes.
        volumes: Vec<BackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
    }
}
