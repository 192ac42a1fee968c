//! DataSources, import schedules, and sources for populated claims.

use super::data_volume::{
    DataSourceRefSourceDataSource, DataVolume, DataVolumeCheckpoint, DataVolumeSourceGCS,
    DataVolumeSourceHTTP, DataVolumeSourceImageIO, DataVolumeSourcePVC, DataVolumeSourceRegistry,
    DataVolumeSourceS3, DataVolumeSourceSnapshot, DataVolumeSourceVDDK,
};
use crate::api::atom::{Empty, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    DataSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataSourceSpec,
        status: Option<DataSourceStatus>,
    }

    DataSourceSpec {
        /// What data volumes that refer to this object are made of.
        source: DataSourceSource,
    }

    DataSourceSource {
        /// A claim to clone.
        pvc: Option<DataVolumeSourcePVC>,
        /// A volume snapshot to restore.
        snapshot: Option<DataVolumeSourceSnapshot>,
        /// Another DataSource.
        data_source: Option<DataSourceRefSourceDataSource>,
    }

    DataSourceStatus {
        /// The source after other DataSources were followed.
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
        /// Whether old imports are deleted: Outdated or Never.
        garbage_collect: Option<String>,
        /// How many imports are kept.
        imports_to_keep: Option<i32>,
        /// Name of the DataSource that points at the newest import.
        managed_data_source: String,
        /// Whether imports stay when this object is deleted: RetainAll or None.
        retention_policy: Option<String>,
        /// Service account of jobs that check the source.
        service_account_name: Option<String> = {"minLength": 1},
    }

    DataImportCronStatus {
        /// Imports that are current or in progress.
        current_imports: Vec<ImportStatus>,
        /// Claim of the newest completed import.
        last_imported_pvc as "lastImportedPVC": Option<DataVolumeSourcePVC>,
        /// When the source was last checked.
        last_execution_timestamp: Option<Time>,
        /// When the newest import completed.
        last_import_timestamp: Option<Time>,
        /// What imports are kept as: pvc or snapshot.
        source_format: Option<String>,
        conditions: Vec<DataImportCronCondition>,
    }

    ImportStatus {
        /// Name of the import's DataVolume.
        data_volume_name as "DataVolumeName": String,
        /// Digest of the version that is imported.
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

    VolumeImportSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeImportSourceSpec,
        status: Option<Empty>,
    }

    VolumeImportSourceSpec {
        /// Where the data comes from.
        source: Option<ImportSourceType>,
        /// Whether all space of the volume is allocated.
        preallocation: Option<bool>,
        /// What the source contains: kubevirt for a disk image, or archive.
        content_type: Option<String>,
        /// Name of the claim that an import in stages goes to.
        target_claim: Option<String>,
        /// Stages of an import from VDDK.
        checkpoints: Vec<DataVolumeCheckpoint>,
        /// Whether the last stage is the final one.
        final_checkpoint: Option<bool>,
    }

    ImportSourceType {
        /// A file on an HTTP server.
        http: Option<DataVolumeSourceHTTP>,
        /// An object in S3.
        s3: Option<DataVolumeSourceS3>,
        /// A container image with a disk.
        registry: Option<DataVolumeSourceRegistry>,
        /// An object in Google Cloud Storage.
        gcs: Option<DataVolumeSourceGCS>,
        /// An empty disk.
        blank: Option<Empty>,
        /// A disk of oVirt.
        imageio: Option<DataVolumeSourceImageIO>,
        /// A disk of VMware.
        vddk: Option<DataVolumeSourceVDDK>,
    }

    VolumeUploadSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeUploadSourceSpec,
        status: Option<Empty>,
    }

    VolumeUploadSourceSpec {
        /// What is uploaded: kubevirt for a disk image, or archive.
        content_type: Option<String>,
        /// Whether all space of the volume is allocated.
        preallocation: Option<bool>,
    }

    VolumeCloneSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeCloneSourceSpec,
    }

    VolumeCloneSourceSpec {
        /// Claim or volume snapshot to clone.
        source: TypedLocalObjectReference,
        /// Whether all space of the volume is allocated.
        preallocation: Option<bool>,
        /// Priority class of the pods that clone.
        priority_class_name: Option<String>,
    }
}
