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
        source: DataSourceSource,
    }

    DataSourceSource {
        pvc: Option<DataVolumeSourcePVC>,
        snapshot: Option<DataVolumeSourceSnapshot>,
        data_source: Option<DataSourceRefSourceDataSource>,
    }

    DataSourceStatus {
        source: Option<DataSourceSource>,
        conditions: Vec<DataSourceCondition>,
    }

    DataSourceCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
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
        template: DataVolume = {"properties": {"metadata": {"x-kubernetes-preserve-unknown-fields": true}}},
        schedule: String,
        garbage_collect: Option<String>,
        imports_to_keep: Option<i32>,
        managed_data_source: String,
        retention_policy: Option<String>,
        service_account_name: Option<String> = {"minLength": 1},
    }

    DataImportCronStatus {
        current_imports: Vec<ImportStatus>,
        last_imported_pvc as "lastImportedPVC": Option<DataVolumeSourcePVC>,
        last_execution_timestamp: Option<Time>,
        last_import_timestamp: Option<Time>,
        source_format: Option<String>,
        conditions: Vec<DataImportCronCondition>,
    }

    ImportStatus {
        data_volume_name as "DataVolumeName": String,
        digest as "Digest": String,
    }

    DataImportCronCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
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
        source: Option<ImportSourceType>,
        preallocation: Option<bool>,
        content_type: Option<String>,
        target_claim: Option<String>,
        checkpoints: Vec<DataVolumeCheckpoint>,
        final_checkpoint: Option<bool>,
    }

    ImportSourceType {
        http: Option<DataVolumeSourceHTTP>,
        s3: Option<DataVolumeSourceS3>,
        registry: Option<DataVolumeSourceRegistry>,
        gcs: Option<DataVolumeSourceGCS>,
        blank: Option<Empty>,
        imageio: Option<DataVolumeSourceImageIO>,
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
        content_type: Option<String>,
        preallocation: Option<bool>,
    }

    VolumeCloneSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeCloneSourceSpec,
    }

    VolumeCloneSourceSpec {
        source: TypedLocalObjectReference,
        preallocation: Option<bool>,
        priority_class_name: Option<String>,
    }
}
