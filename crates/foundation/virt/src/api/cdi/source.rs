//! DataSources, import schedules, and sources for populated claims.

use super::data_volume::{
    DataSourceRefSourceDataSource, DataVolume, DataVolumeCheckpoint, DataVolumeSourceGCS,
    DataVolumeSourceHTTP, DataVolumeSourceImageIO, DataVolumeSourcePVC, DataVolumeSourceRegistry,
    DataVolumeSourceS3, DataVolumeSourceSnapshot, DataVolumeSourceVDDK,
};
use crate::api::atom::{Empty, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    /// Reference to the disk that new disks are copied from.
    DataSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataSourceSpec,
        status: Option<DataSourceStatus>,
    }

    DataSourceSpec {
        /// Source of the DataVolumes that refer to this object.
        source: DataSourceSource,
    }

    DataSourceSource {
        /// PersistentVolumeClaim that is cloned.
        pvc: Option<DataVolumeSourcePVC>,
        /// VolumeSnapshot that is restored.
        snapshot: Option<DataVolumeSourceSnapshot>,
        /// Reference to another DataSource.
        data_source: Option<DataSourceRefSourceDataSource>,
    }

    DataSourceStatus {
        /// Resolved source, after references to other DataSources were followed.
        source: Option<DataSourceSource>,
        conditions: Vec<DataSourceCondition>,
    }

    DataSourceCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
        /// When the condition was last updated.
        last_heartbeat_time: Option<Time>,
        reason: Option<String>,
        message: Option<String>,
    }

    /// Schedule that imports an image again when its source has changed.
    DataImportCron {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataImportCronSpec,
        status: Option<DataImportCronStatus>,
    }

    DataImportCronSpec {
        /// DataVolume that each import creates.
        template: DataVolume = {"properties": {"metadata": {"x-kubernetes-preserve-unknown-fields": true}}},
        /// When the source is checked for a new version, in cron format.
        schedule: String,
        /// Whether outdated imports are deleted: Outdated or Never.
        garbage_collect: Option<String>,
        /// Number of imports that are kept.
        imports_to_keep: Option<i32>,
        /// Name of the DataSource that refers to the latest import.
        managed_data_source: String,
        /// Whether imports are kept when this object is deleted: RetainAll or None.
        retention_policy: Option<String>,
        /// ServiceAccount of the jobs that check the source.
        service_account_name: Option<String> = {"minLength": 1},
    }

    DataImportCronStatus {
        /// Imports that are current or in progress.
        current_imports: Vec<ImportStatus>,
        /// PersistentVolumeClaim of the latest completed import.
        last_imported_pvc as "lastImportedPVC": Option<DataVolumeSourcePVC>,
        /// When the source was last checked.
        last_execution_timestamp: Option<Time>,
        /// When the latest import completed.
        last_import_timestamp: Option<Time>,
        /// Format of the imported data: pvc or snapshot.
        source_format: Option<String>,
        conditions: Vec<DataImportCronCondition>,
    }

    ImportStatus {
        /// Name of the DataVolume of the import.
        data_volume_name as "DataVolumeName": String,
        /// Digest of the imported version.
        digest as "Digest": String,
    }

    DataImportCronCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
        /// When the condition was last updated.
        last_heartbeat_time: Option<Time>,
        reason: Option<String>,
        message: Option<String>,
    }

    /// Source of a claim that begins as an imported image.
    VolumeImportSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeImportSourceSpec,
        status: Option<Empty>,
    }

    VolumeImportSourceSpec {
        /// Source of the data that is imported.
        source: Option<ImportSourceType>,
        /// Whether all space of the volume is allocated in advance.
        preallocation: Option<bool>,
        /// Content of the source: kubevirt for a disk image, archive for a tar archive.
        content_type: Option<String>,
        /// Name of the PersistentVolumeClaim that a multi-stage import is written to.
        target_claim: Option<String>,
        /// Checkpoints of a multi-stage import.
        checkpoints: Vec<DataVolumeCheckpoint>,
        /// Whether the last of the checkpoints completes the import.
        final_checkpoint: Option<bool>,
    }

    ImportSourceType {
        /// Disk image on an HTTP server.
        http: Option<DataVolumeSourceHTTP>,
        /// Disk image in an S3 bucket.
        s3: Option<DataVolumeSourceS3>,
        /// Disk image in a container registry.
        registry: Option<DataVolumeSourceRegistry>,
        /// Disk image in Google Cloud Storage.
        gcs: Option<DataVolumeSourceGCS>,
        /// Blank disk without data.
        blank: Option<Empty>,
        /// Disk of oVirt, read from its imageio service.
        imageio: Option<DataVolumeSourceImageIO>,
        /// Disk of VMware, read through VDDK.
        vddk: Option<DataVolumeSourceVDDK>,
    }

    /// Source of a claim that begins as an uploaded image.
    VolumeUploadSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeUploadSourceSpec,
        status: Option<Empty>,
    }

    VolumeUploadSourceSpec {
        /// Content of the upload: kubevirt for a disk image, archive for a tar archive.
        content_type: Option<String>,
        /// Whether all space of the volume is allocated in advance.
        preallocation: Option<bool>,
    }

    /// Source of a claim that begins as a copy of another one.
    VolumeCloneSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeCloneSourceSpec,
    }

    VolumeCloneSourceSpec {
        /// PersistentVolumeClaim or VolumeSnapshot to clone.
        source: TypedLocalObjectReference,
        /// Whether all space of the volume is allocated in advance.
        preallocation: Option<bool>,
        /// PriorityClass of the pods that clone the data.
        priority_class_name: Option<String>,
    }
}
