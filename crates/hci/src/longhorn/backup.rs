//! Backups, where they are kept, and what is known of them.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    BackupTarget {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackupTargetSpec>,
        status: Option<BackupTargetStatus>,
    }

    BackupTargetSpec {
        backup_target_url as "backupTargetURL": Option<String>,
        credential_secret: Option<String>,
        poll_interval: Option<String>,
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupTargetStatus {
        owner_id as "ownerID": Option<String>,
        available: Option<bool>,
        conditions: Vec<Condition> = {"nullable": true},
        last_synced_at: Option<String> = {"nullable": true},
    }

    BackupVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackupVolumeSpec>,
        status: Option<BackupVolumeStatus>,
    }

    BackupVolumeSpec {
        backup_target_name: Option<String>,
        volume_name: Option<String>,
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupVolumeStatus {
        owner_id as "ownerID": Option<String>,
        last_modification_time: Option<String> = {"nullable": true},
        size: Option<String>,
        labels: Map<String> = {"nullable": true},
        created_at: Option<String>,
        last_backup_name: Option<String>,
        last_backup_at: Option<String>,
        data_stored: Option<String>,
        messages: Map<String> = {"nullable": true},
        backing_image_name: Option<String>,
        backing_image_checksum: Option<String>,
        storage_class_name: Option<String>,
        last_synced_at: Option<String> = {"nullable": true},
    }

    Backup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackupSpec>,
        status: Option<BackupStatus>,
    }

    BackupSpec {
        snapshot_name: Option<String>,
        labels: Map<String>,
        backup_mode: Option<String> = {"enum": ["full", "incremental", ""]},
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupStatus {
        owner_id as "ownerID": Option<String>,
        state: Option<String>,
        progress: Option<i32>,
        replica_address: Option<String>,
        error: Option<String>,
        url: Option<String>,
        snapshot_name: Option<String>,
        snapshot_created_at: Option<String>,
        backup_created_at: Option<String>,
        size: Option<String>,
        labels: Map<String> = {"nullable": true},
        messages: Map<String> = {"nullable": true},
        volume_name: Option<String>,
        volume_size: Option<String>,
        volume_created: Option<String>,
        volume_backing_image_name: Option<String>,
        compression_method: Option<String>,
        newly_upload_data_size: Option<String>,
        re_uploaded_data_size: Option<String>,
        backup_target_name: Option<String>,
        last_synced_at: Option<String> = {"nullable": true},
    }

    BackupBackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackupBackingImageSpec>,
        status: Option<BackupBackingImageStatus>,
    }

    BackupBackingImageSpec {
        backing_image: Option<String>,
        backup_target_name: Option<String>,
        user_created: Option<bool>,
        labels: Map<String>,
        sync_requested_at: Option<String> = {"nullable": true},
    }

    BackupBackingImageStatus {
        owner_id as "ownerID": Option<String>,
        backing_image: Option<String>,
        state: Option<String>,
        progress: Option<i32>,
        error: Option<String>,
        url: Option<String>,
        size: Option<i64>,
        checksum: Option<String>,
        compression_method: Option<String>,
        last_synced_at: Option<String> = {"nullable": true},
    }

    SystemBackup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<SystemBackupSpec>,
        status: Option<SystemBackupStatus>,
    }

    SystemBackupSpec {
        volume_backup_policy: Option<String> = {"enum": ["if-not-present", "always", "disabled"]},
    }

    SystemBackupStatus {
        owner_id as "ownerID": Option<String>,
        state: Option<String>,
        version: Option<String>,
        created_at: Option<String>,
        conditions: Vec<Condition> = {"nullable": true},
    }

    SystemRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<SystemRestoreSpec>,
        status: Option<SystemRestoreStatus>,
    }

    SystemRestoreSpec {
        system_backup: String,
    }

    SystemRestoreStatus {
        owner_id as "ownerID": Option<String>,
        state: Option<String>,
        source_url as "sourceURL": Option<String>,
        conditions: Vec<Condition> = {"nullable": true},
    }
}
