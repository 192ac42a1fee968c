//! `export.kubevirt.io`: disks for download.

use crate::api::atom::{Duration, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    VirtualMachineExport {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineExportSpec,
        /// What is observed.
        status: Option<VirtualMachineExportStatus>,
    }

    VirtualMachineExportSpec {
        /// The claim, virtual machine or snapshot that is exported.
        source: TypedLocalObjectReference,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// How long the export exists.
        ttl_duration: Option<Duration>,
    }

    VirtualMachineExportStatus {
        /// Phase of the object.
        phase: Option<String>,
        /// URLs of the data.
        links: Option<VirtualMachineExportLinks>,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// When the export is deleted.
        ttl_expiration_time: Option<Time>,
        /// Service of the export.
        service_name: Option<String>,
        /// Virtual machine that is exported.
        virtual_machine_name: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineExportLinks {
        /// URLs inside the cluster.
        internal: Option<VirtualMachineExportLink>,
        /// URLs outside of the cluster.
        external: Option<VirtualMachineExportLink>,
    }

    VirtualMachineExportLink {
        /// Certificate authority of the server, as PEM.
        cert: String,
        /// Volumes of the export.
        volumes: Vec<VirtualMachineExportVolume> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Backups of the export.
        backups: Vec<VirtualMachineExportBackup> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Manifests of the virtual machine.
        manifests: Vec<VirtualMachineExportManifest> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    }

    VirtualMachineExportManifest {
        /// all or auth-header-secret.
        r#type: String,
        /// URL.
        url: String,
    }

    VirtualMachineExportVolume {
        /// Name of the volume.
        name: String,
        /// Formats that the volume can be downloaded in.
        formats: Vec<VirtualMachineExportVolumeFormat> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["format"]},
    }

    VirtualMachineExportVolumeFormat {
        /// raw, gzip, dir or tar.gz.
        format: String,
        /// URL.
        url: String,
    }

    VirtualMachineExportBackup {
        /// Name of the volume.
        name: String,
        /// URLs of the backup.
        endpoints: Vec<VirtualMachineExportBackupEndpoint> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["endpoint"]},
    }

    VirtualMachineExportBackupEndpoint {
        /// data or map.
        endpoint: String,
        /// URL.
        url: String,
    }

    Condition {
        /// Type of the condition.
        r#type: String,
        /// True, False or Unknown.
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        /// When the status last changed.
        last_transition_time: Option<Time> = {"nullable": true},
        /// Why, in one word.
        reason: Option<String>,
        /// Explanation.
        message: Option<String>,
    }
}
