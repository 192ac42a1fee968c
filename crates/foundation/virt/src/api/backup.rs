//! `backup.kubevirt.io`: backups of machines to claims. Nothing acts on them yet.

use crate::api::atom::{Duration, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    VirtualMachineBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is backed up, and where to.
        spec: VirtualMachineBackupSpec,
        /// How far the backup is.
        status: Option<VirtualMachineBackupStatus>,
    }

    VirtualMachineBackupSpec: {"x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "spec is immutable after creation"},
        {"rule": "has(self.pvcName) && self.pvcName != \"\"", "message": "pvcName is required"}
    ]} {
        /// The VirtualMachine or VirtualMachineBackupTracker.
        source: TypedLocalObjectReference,
        /// Push writes the backup to a claim. Pull offers it for download.
        mode: Option<String> = {"enum": ["Push", "Pull"]},
        /// Claim that the backup is written to.
        pvc_name: Option<String>,
        /// The file systems of the guest are not frozen.
        skip_quiesce: Option<bool>,
        /// All data is backed up, not only what has changed.
        force_full_backup: Option<bool>,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// How long a backup can be downloaded.
        ttl_duration: Option<Duration>,
    }

    VirtualMachineBackupStatus {
        /// Full or Incremental.
        r#type: Option<String>,
        /// Complete, Failed, Progressing and Quiesced.
        conditions: Vec<BackupCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
        /// Checkpoint of this backup.
        checkpoint_name: Option<String>,
        /// Certificate of the server for downloads.
        endpoint_cert: Option<String>,
        /// Volumes in the backup.
        included_volumes: Vec<BackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// UID of the export for downloads.
        export_uid as "exportUID": Option<String>,
    }

    BackupCondition {
        /// Type of the condition.
        r#type: String,
        /// True, False or Unknown.
        status: String = {"enum": ["True", "False", "Unknown"]},
        /// Generation of the object that the condition is about.
        observed_generation: Option<i64>,
        /// When the status last changed.
        last_transition_time: Time,
        /// Why, in one word.
        reason: String,
        /// Explanation.
        message: Option<String>,
    }

    BackupVolumeInfo {
        /// Name of the volume.
        volume_name: String,
        /// URL of the data.
        data_endpoint: Option<String>,
        /// URL of the map of changed blocks.
        map_endpoint: Option<String>,
    }

    VirtualMachineBackupTracker {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Which VirtualMachine is tracked.
        spec: VirtualMachineBackupTrackerSpec,
        /// The last backup.
        status: Option<VirtualMachineBackupTrackerStatus>,
    }

    VirtualMachineBackupTrackerSpec: {"x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "spec is immutable after creation"}
    ]} {
        /// The VirtualMachine.
        source: TypedLocalObjectReference,
    }

    VirtualMachineBackupTrackerStatus {
        /// Checkpoint of the last backup.
        latest_checkpoint: Option<BackupCheckpoint>,
        /// The checkpoint has to be restored after a restart of the machine.
        checkpoint_redefinition_required: Option<bool>,
    }

    BackupCheckpoint {
        /// Name of the checkpoint.
        name: Option<String>,
        /// When it was made.
        creation_time: Option<Time>,
        /// Volumes in the backup.
        volumes: Vec<BackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
    }
}
