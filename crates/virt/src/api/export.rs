//! `export.kubevirt.io`: disks for download.

use crate::api::atom::{Duration, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    VirtualMachineExport {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineExportSpec,
        status: Option<VirtualMachineExportStatus>,
    }

    VirtualMachineExportSpec {
        source: TypedLocalObjectReference,
        token_secret_ref: Option<String>,
        ttl_duration: Option<Duration>,
    }

    VirtualMachineExportStatus {
        phase: Option<String>,
        links: Option<VirtualMachineExportLinks>,
        token_secret_ref: Option<String>,
        ttl_expiration_time: Option<Time>,
        service_name: Option<String>,
        virtual_machine_name: Option<String>,
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineExportLinks {
        internal: Option<VirtualMachineExportLink>,
        external: Option<VirtualMachineExportLink>,
    }

    VirtualMachineExportLink {
        cert: String,
        volumes: Vec<VirtualMachineExportVolume> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        backups: Vec<VirtualMachineExportBackup> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        manifests: Vec<VirtualMachineExportManifest> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    }

    VirtualMachineExportManifest {
        r#type: String,
        url: String,
    }

    VirtualMachineExportVolume {
        name: String,
        formats: Vec<VirtualMachineExportVolumeFormat> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["format"]},
    }

    VirtualMachineExportVolumeFormat {
        format: String,
        url: String,
    }

    VirtualMachineExportBackup {
        name: String,
        endpoints: Vec<VirtualMachineExportBackupEndpoint> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["endpoint"]},
    }

    VirtualMachineExportBackupEndpoint {
        endpoint: String,
        url: String,
    }

    Condition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }
}
