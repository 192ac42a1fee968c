//! Backups, where they are kept, and what is known of them.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    BackupTarget {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackupTargetSpec>,
        /// What is observed.
        status: Option<BackupTargetStatus>,
    }

    BackupTargetSpec {
        /// URL of the backup target.
        backup_target_url as "backupTargetURL": Option<String>,
        /// Secret with the credentials of the backup target.
        credential_secret: Option<String>,
        /// How often the backup target is read.
        poll_interval: Option<String>,
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupTargetStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// The backup target can be reached.
        available: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// When it was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    BackupVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackupVolumeSpec>,
        /// What is observed.
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
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// When the backup volume last changed.
        last_modification_time: Option<String> = {"nullable": true},
        /// Size of the volume in bytes.
        size: Option<String>,
        /// Labels.
        labels: Map<String> = {"nullable": true},
        /// When it was created.
        created_at: Option<String>,
        /// Name of the last backup.
        last_backup_name: Option<String>,
        /// When the last backup was made.
        last_backup_at: Option<String>,
        /// Bytes in the backup target.
        data_stored: Option<String>,
        /// Messages about errors.
        messages: Map<String> = {"nullable": true},
        /// Name of the backing image.
        backing_image_name: Option<String>,
        /// Checksum of the backing image.
        backing_image_checksum: Option<String>,
        /// Storage class of the volume.
        storage_class_name: Option<String>,
        /// When it was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    Backup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackupSpec>,
        /// What is observed.
        status: Option<BackupStatus>,
    }

    BackupSpec {
        /// Name of the snapshot.
        snapshot_name: Option<String>,
        /// Labels.
        labels: Map<String>,
        /// full or incremental.
        backup_mode: Option<String> = {"enum": ["full", "incremental", ""]},
        /// Size of the blocks of the backup in bytes.
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the object.
        state: Option<String>,
        /// Progress in percent.
        progress: Option<i32>,
        /// Replica that the backup is read from.
        replica_address: Option<String>,
        /// Why it failed.
        error: Option<String>,
        /// URL.
        url: Option<String>,
        /// Name of the snapshot.
        snapshot_name: Option<String>,
        /// When the snapshot was taken.
        snapshot_created_at: Option<String>,
        /// When the backup was made.
        backup_created_at: Option<String>,
        /// Size in bytes.
        size: Option<String>,
        /// Labels.
        labels: Map<String> = {"nullable": true},
        /// Messages about errors.
        messages: Map<String> = {"nullable": true},
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// When the volume was created.
        volume_created: Option<String>,
        /// Backing image of the volume.
        volume_backing_image_name: Option<String>,
        /// How the data is compressed.
        compression_method: Option<String>,
        /// Bytes that were uploaded for the first time.
        newly_upload_data_size: Option<String>,
        /// Bytes that were uploaded again.
        re_uploaded_data_size: Option<String>,
        /// Name of the backup target.
        backup_target_name: Option<String>,
        /// When it was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    BackupBackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackupBackingImageSpec>,
        /// What is observed.
        status: Option<BackupBackingImageStatus>,
    }

    BackupBackingImageSpec {
        /// Backing image of the volume.
        backing_image: Option<String>,
        /// Name of the backup target.
        backup_target_name: Option<String>,
        /// A user created the snapshot.
        user_created: Option<bool>,
        /// Labels.
        labels: Map<String>,
        /// When a synchronization was requested.
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupBackingImageStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Backing image of the volume.
        backing_image: Option<String>,
        /// State of the object.
        state: Option<String>,
        /// Progress in percent.
        progress: Option<i32>,
        /// Why it failed.
        error: Option<String>,
        /// URL.
        url: Option<String>,
        /// Size in bytes.
        size: Option<i64>,
        /// Checksum of the data.
        checksum: Option<String>,
        /// How the data is compressed.
        compression_method: Option<String>,
        /// When it was last synchronized.
        last_synced_at: Option<String> = {"nullable": true},
    }

    SystemBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<SystemBackupSpec>,
        /// What is observed.
        status: Option<SystemBackupStatus>,
    }

    SystemBackupSpec {
        /// Which volumes are backed up first: if-not-present, always or disabled.
        volume_backup_policy: Option<String> = {"enum": ["if-not-present", "always", "disabled"]},
    }

    SystemBackupStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the object.
        state: Option<String>,
        /// Version of the system.
        version: Option<String>,
        /// When it was created.
        created_at: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }

    SystemRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<SystemRestoreSpec>,
        /// What is observed.
        status: Option<SystemRestoreStatus>,
    }

    SystemRestoreSpec {
        /// Name of the system backup.
        system_backup: String,
    }

    SystemRestoreStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the object.
        state: Option<String>,
        /// URL that the backup is read from.
        source_url as "sourceURL": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }
}
