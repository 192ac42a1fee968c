//! `export.kubevirt.io`: disks for download.

use crate::api::atom::{Duration, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    /// Download of the disks of a claim, a machine or a snapshot.
    VirtualMachineExport {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired export: its source and lifetime.
        spec: VirtualMachineExportSpec,
        /// Observed state of the export and its download links.
        status: Option<VirtualMachineExportStatus>,
    }

    VirtualMachineExportSpec {
        /// PersistentVolumeClaim, VirtualMachine or VirtualMachineSnapshot that is exported.
        source: TypedLocalObjectReference,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// Lifetime of the export, after which it is deleted.
        ttl_duration: Option<Duration>,
    }

    VirtualMachineExportStatus {
        /// Phase of the export: Pending, Ready, Terminated or Skipped.
        phase: Option<String>,
        /// URLs to download the exported data from.
        links: Option<VirtualMachineExportLinks>,
        /// Secret with the token for downloads.
        token_secret_ref: Option<String>,
        /// When the export is deleted.
        ttl_expiration_time: Option<Time>,
        /// Name of the Service of the export server.
        service_name: Option<String>,
        /// Name of the exported VirtualMachine.
        virtual_machine_name: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineExportLinks {
        /// URLs that are reachable inside the cluster.
        internal: Option<VirtualMachineExportLink>,
        /// URLs that are reachable from outside of the cluster.
        external: Option<VirtualMachineExportLink>,
    }

    VirtualMachineExportLink {
        /// Certificate of the authority that signed the server's certificate, PEM.
        cert: String,
        /// Exported volumes with their URLs.
        volumes: Vec<VirtualMachineExportVolume> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Exported backups with their URLs.
        backups: Vec<VirtualMachineExportBackup> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Manifests that recreate the virtual machine elsewhere.
        manifests: Vec<VirtualMachineExportManifest> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    }

    VirtualMachineExportManifest {
        /// Type of the manifest: all or auth-header-secret.
        r#type: String,
        /// URL to download the manifest from.
        url: String,
    }

    VirtualMachineExportVolume {
        /// Name of the volume.
        name: String,
        /// Formats that the volume can be downloaded in, with their URLs.
        formats: Vec<VirtualMachineExportVolumeFormat> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["format"]},
    }

    VirtualMachineExportVolumeFormat {
        /// Format of the download: raw, gzip, dir or tar.gz.
        format: String,
        /// URL to download the volume from.
        url: String,
    }

    VirtualMachineExportBackup {
        /// Name of the volume.
        name: String,
        /// Endpoints of the backup: its data and the map of its blocks.
        endpoints: Vec<VirtualMachineExportBackupEndpoint> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["endpoint"]},
    }

    VirtualMachineExportBackupEndpoint {
        /// Type of the endpoint: data or map.
        endpoint: String,
        /// URL to download from.
        url: String,
    }

    Condition {
        /// Type of the condition.
        r#type: String,
        /// Status of the condition: True, False or Unknown.
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        /// When the status of the condition last changed.
        last_transition_time: Option<Time> = {"nullable": true},
        /// Reason of the last status change as one CamelCase word, for programs.
        reason: Option<String>,
        /// Human-readable details of the condition.
        message: Option<String>,
    }
}
