//! DataVolumes: claims that are filled from somewhere.

use crate::api::atom::{
    Empty, LabelSelector, ObjectMeta, PersistentVolumeClaimSpec, Time, TypedLocalObjectReference,
    TypedObjectReference, VolumeResourceRequirements,
};
use crate::api::record::record;

record! {
    /// A claim that is filled from a source.
    DataVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataVolumeSpec,
        status: Option<DataVolumeStatus>,
    }

    DataVolumeSpec {
        /// Where the data comes from; exactly one.
        source: Option<DataVolumeSource>,
        /// A DataSource that says where the data comes from.
        source_ref: Option<DataVolumeSourceRef>,
        /// The claim, as it is.
        pvc: Option<PersistentVolumeClaimSpec>,
        /// The claim, with gaps filled by the StorageProfile of its class.
        storage: Option<StorageSpec>,
        /// PriorityClass of the transfer.
        priority_class_name: Option<String>,
        /// kubevirt (a disk image) or archive (a tar).
        content_type: Option<String> = {"enum": ["kubevirt", "archive"]},
        /// Steps of a multi-stage import.
        checkpoints: Vec<DataVolumeCheckpoint>,
        /// The last of the checkpoints completes the import.
        final_checkpoint: Option<bool>,
        /// Allocates the whole disk beforehand.
        preallocation: Option<bool>,
    }

    StorageSpec {
        /// Access modes; default is those of the StorageProfile.
        access_modes: Vec<String>,
        /// Labels of volumes that may be bound.
        selector: Option<LabelSelector>,
        /// Requested size.
        resources: Option<VolumeResourceRequirements>,
        /// PersistentVolume to bind.
        volume_name: Option<String>,
        /// StorageClass; default is the default class.
        storage_class_name: Option<String>,
        /// Block or Filesystem; default is that of the StorageProfile.
        volume_mode: Option<String>,
        /// Object that the claim is created from.
        data_source: Option<TypedLocalObjectReference>,
        /// Object that the claim is created from, possibly in another namespace.
        data_source_ref: Option<TypedObjectReference>,
    }

    DataVolumeCheckpoint {
        /// The checkpoint before.
        previous: String,
        /// This checkpoint.
        current: String,
    }

    DataVolumeSource {
        /// Download from a web server.
        http: Option<DataVolumeSourceHTTP>,
        /// Download from an S3 bucket.
        s3: Option<DataVolumeSourceS3>,
        /// Download from Google Cloud Storage.
        gcs: Option<DataVolumeSourceGCS>,
        /// Pull from a container registry.
        registry: Option<DataVolumeSourceRegistry>,
        /// Clone a claim.
        pvc: Option<DataVolumeSourcePVC>,
        /// Wait for an upload.
        upload: Option<Empty>,
        /// An empty disk.
        blank: Option<Empty>,
        /// Download from oVirt's imageio.
        imageio: Option<DataVolumeSourceImageIO>,
        /// Download from VMware through VDDK.
        vddk: Option<DataVolumeSourceVDDK>,
        /// Restore a VolumeSnapshot.
        snapshot: Option<DataVolumeSourceSnapshot>,
    }

    DataVolumeSourcePVC {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
    }

    DataVolumeSourceSnapshot {
        /// Namespace of the snapshot.
        namespace: String,
        /// Name of the snapshot.
        name: String,
    }

    DataSourceRefSourceDataSource {
        /// Namespace of the DataSource.
        namespace: String,
        /// Name of the DataSource.
        name: String,
    }

    DataVolumeSourceS3 {
        /// URL of the object.
        url: String,
        /// Secret with accessKeyId and secretKey.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
    }

    DataVolumeSourceGCS {
        /// URL of the object.
        url: String,
        /// Secret with the credentials.
        secret_ref: Option<String>,
    }

    DataVolumeSourceRegistry {
        /// docker://host/name:tag
        url: Option<String>,
        /// Not supported.
        image_stream: Option<String>,
        /// pod or node; both are pulled by the node.
        pull_method: Option<String>,
        /// Secret with accessKeyId and secretKey.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Platform of the image.
        platform: Option<PlatformOptions>,
    }

    PlatformOptions {
        /// Architecture of the image, for example amd64.
        architecture: Option<String>,
    }

    DataVolumeSourceHTTP {
        /// URL of the image, http or https.
        url: String,
        /// Secret with accessKeyId and secretKey, for basic authentication.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Further headers of the request.
        extra_headers: Vec<String>,
        /// Secrets with further headers of the request.
        secret_extra_headers: Vec<String>,
        /// `sha256:…` of what is downloaded.
        checksum: Option<String>,
    }

    DataVolumeSourceImageIO {
        /// URL of the oVirt engine.
        url: String,
        /// Identifier of the disk.
        disk_id: String,
        /// Secret with the credentials.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Do not verify the certificate of the server.
        insecure_skip_verify: Option<bool>,
    }

    DataVolumeSourceVDDK {
        /// URL of vCenter or ESXi.
        url: Option<String>,
        /// UUID of the virtual machine.
        uuid: Option<String>,
        /// Path of the disk in its datastore.
        backing_file: Option<String>,
        /// Thumbprint of the certificate of the server.
        thumbprint: Option<String>,
        /// Secret with the credentials.
        secret_ref: Option<String>,
        /// Image with the VDDK library.
        init_image_url as "initImageURL": Option<String>,
        /// ConfigMap with further arguments of VDDK.
        extra_args: Option<String>,
    }

    DataVolumeSourceRef {
        /// Only DataSource.
        kind: String,
        /// Namespace of the DataSource; default is that of the DataVolume.
        namespace: Option<String>,
        /// Name of the DataSource.
        name: String,
    }

    DataVolumeStatus {
        /// Name of the claim.
        claim_name: Option<String>,
        /// Pending, WaitForFirstConsumer, ImportInProgress, CloneInProgress, UploadReady, Succeeded or Failed, among others.
        phase: Option<String>,
        /// How much has arrived, in percent, or N/A.
        progress: Option<String>,
        /// How often the transfer was started again.
        restart_count: Option<i32>,
        conditions: Vec<DataVolumeCondition>,
    }

    DataVolumeCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
        /// When the condition was last updated.
        last_heartbeat_time: Option<Time>,
        reason: Option<String>,
        message: Option<String>,
    }
}
