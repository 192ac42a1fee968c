//! Longhorn's kinds of backups: BackupTarget, BackupVolume, Backup, BackupBackingImage, SystemBackup
//! and SystemRestore.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// S3 bucket or NFS share that backups are stored on.
    BackupTarget {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired location of the backup target and its credentials.
        spec: Option<BackupTargetSpec>,
        /// Observed availability of the backup target.
        status: Option<BackupTargetStatus>,
    }

    BackupTargetSpec {
        /// URL of the backup target.
        backup_target_url as "backupTargetURL": Option<String>,
        /// Name of the Secret with the credentials of the backup target.
        credential_secret: Option<String>,
        /// Interval at which the backup target is synchronized, for example 5m0s.
        poll_interval: Option<String>,
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupTargetStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Whether the backup target is reachable.
        available: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// When the backup target was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    /// Backups of one volume on the backup target.
    BackupVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired state of the backup volume.
        spec: Option<BackupVolumeSpec>,
        /// Observed backups and size of the volume in the backup target.
        status: Option<BackupVolumeStatus>,
    }

    BackupVolumeSpec {
        /// Name of the backup target.
        backup_target_name: Option<String>,
        /// Name of the volume.
        volume_name: Option<String>,
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupVolumeStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// When the backup volume was last modified in the backup target.
        last_modification_time: Option<String> = {"nullable": true},
        /// Size of the volume in bytes.
        size: Option<String>,
        /// Labels of the volume in the backup target.
        labels: Map<String> = {"nullable": true},
        /// When the backup volume was created.
        created_at: Option<String>,
        /// Name of the latest backup.
        last_backup_name: Option<String>,
        /// When the latest backup was created.
        last_backup_at: Option<String>,
        /// Size of the stored data in the backup target, in bytes.
        data_stored: Option<String>,
        /// Errors of the last synchronization, by type.
        messages: Map<String> = {"nullable": true},
        /// Name of the backing image of the volume.
        backing_image_name: Option<String>,
        /// Checksum of the backing image.
        backing_image_checksum: Option<String>,
        /// StorageClass of the volume.
        storage_class_name: Option<String>,
        /// When the backup volume was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    /// Backup of a snapshot of a volume on the backup target.
    Backup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup of a snapshot.
        spec: Option<BackupSpec>,
        /// Observed progress and size of the backup.
        status: Option<BackupStatus>,
    }

    BackupSpec {
        /// Name of the snapshot to back up.
        snapshot_name: Option<String>,
        /// Labels of the backup.
        labels: Map<String>,
        /// Mode of the backup: full or incremental.
        backup_mode: Option<String> = {"enum": ["full", "incremental", ""]},
        /// Size of the blocks of the backup in bytes.
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the backup, for example InProgress, Completed or Error.
        state: Option<String>,
        /// Progress of the backup in percent.
        progress: Option<i32>,
        /// Address of the replica that the data is read from.
        replica_address: Option<String>,
        /// Error of the backup, if it failed.
        error: Option<String>,
        /// URL of the backup in the backup target.
        url: Option<String>,
        /// Name of the snapshot.
        snapshot_name: Option<String>,
        /// When the snapshot was taken.
        snapshot_created_at: Option<String>,
        /// When the backup was completed.
        backup_created_at: Option<String>,
        /// Size of the backup in bytes.
        size: Option<String>,
        /// Labels of the backup.
        labels: Map<String> = {"nullable": true},
        /// Errors of the backup, by type.
        messages: Map<String> = {"nullable": true},
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// When the volume was created.
        volume_created: Option<String>,
        /// Backing image of the volume.
        volume_backing_image_name: Option<String>,
        /// Compression of the data: none, lz4 or gzip.
        compression_method: Option<String>,
        /// Size of the data that was uploaded for the first time, in bytes.
        newly_upload_data_size: Option<String>,
        /// Size of the data that was uploaded again, in bytes.
        re_uploaded_data_size: Option<String>,
        /// Name of the backup target.
        backup_target_name: Option<String>,
        /// When the backup was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    /// Backup of a backing image on the backup target.
    BackupBackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup of a backing image.
        spec: Option<BackupBackingImageSpec>,
        /// Observed progress and size of the backup.
        status: Option<BackupBackingImageStatus>,
    }

    BackupBackingImageSpec {
        /// Name of the backing image to back up.
        backing_image: Option<String>,
        /// Name of the backup target.
        backup_target_name: Option<String>,
        /// Whether a user created the backup.
        user_created: Option<bool>,
        /// Labels of the backup.
        labels: Map<String>,
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupBackingImageStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Name of the backing image.
        backing_image: Option<String>,
        /// State of the backup, for example InProgress, Completed or Error.
        state: Option<String>,
        /// Progress of the backup in percent.
        progress: Option<i32>,
        /// Error of the backup, if it failed.
        error: Option<String>,
        /// URL of the backup in the backup target.
        url: Option<String>,
        /// Size of the backup in bytes.
        size: Option<i64>,
        /// SHA-512 checksum of the backing image.
        checksum: Option<String>,
        /// Compression of the data: none, lz4 or gzip.
        compression_method: Option<String>,
        /// When the backup was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    /// Backup of the objects of the storage.
    SystemBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired backup of the objects of Longhorn.
        spec: Option<SystemBackupSpec>,
        /// Observed progress of the system backup.
        status: Option<SystemBackupStatus>,
    }

    SystemBackupSpec {
        /// Volumes that are backed up first: if-not-present, always or disabled.
        volume_backup_policy: Option<String> = {"enum": ["if-not-present", "always", "disabled"]},
    }

    SystemBackupStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the system backup, for example Generating, Ready or Error.
        state: Option<String>,
        /// Version of Longhorn that created the system backup.
        version: Option<String>,
        /// When the system backup was created.
        created_at: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }

    /// Restore of a backup of the objects of the storage.
    SystemRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired restore of a system backup.
        spec: Option<SystemRestoreSpec>,
        /// Observed progress of the restore.
        status: Option<SystemRestoreStatus>,
    }

    SystemRestoreSpec {
        /// Name of the SystemBackup to restore.
        system_backup: String,
    }

    SystemRestoreStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the restore, for example Restoring, Completed or Error.
        state: Option<String>,
        /// URL of the system backup in the backup target.
        source_url as "sourceURL": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }
}
