//! `clone.kubevirt.io`: copies of machines.

use crate::api::atom::{Map, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    VirtualMachineClone {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineCloneSpec,
        status: Option<VirtualMachineCloneStatus>,
    }

    VirtualMachineCloneTemplateFilters {
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineCloneSpec {
        source: TypedLocalObjectReference,
        target: Option<TypedLocalObjectReference>,
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        template: Option<VirtualMachineCloneTemplateFilters>,
        new_mac_addresses: Map<String>,
        new_sm_bios_serial as "newSMBiosSerial": Option<String>,
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        volume_name_policy: Option<String> = {"enum": ["RandomizeNames", "PrefixTargetName"]},
    }

    VirtualMachineCloneStatus {
        creation_time: Option<Time> = {"nullable": true},
        phase: Option<String>,
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        snapshot_name: Option<String> = {"nullable": true},
        restore_name: Option<String> = {"nullable": true},
        target_name: Option<String> = {"nullable": true},
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
