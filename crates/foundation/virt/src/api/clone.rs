//! `clone.kubevirt.io`: copies of machines.

use crate::api::atom::{Map, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    VirtualMachineClone {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineCloneSpec,
        /// What is observed.
        status: Option<VirtualMachineCloneStatus>,
    }

    VirtualMachineCloneTemplateFilters {
        /// Annotations that are copied.
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Labels that are copied.
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineCloneSpec {
        /// The virtual machine or snapshot that is copied.
        source: TypedLocalObjectReference,
        /// The new virtual machine.
        target: Option<TypedLocalObjectReference>,
        /// Annotations that are copied.
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Labels that are copied.
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Filters for labels and annotations of the template.
        template: Option<VirtualMachineCloneTemplateFilters>,
        /// MAC addresses of the new virtual machine, by interface.
        new_mac_addresses: Map<String>,
        /// Serial number of the new virtual machine.
        new_sm_bios_serial as "newSMBiosSerial": Option<String>,
        /// JSON patches of the virtual machine.
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// How the new volumes are named.
        volume_name_policy: Option<String> = {"enum": ["RandomizeNames", "PrefixTargetName"]},
    }

    VirtualMachineCloneStatus {
        /// When it was created.
        creation_time: Option<Time> = {"nullable": true},
        /// Phase of the object.
        phase: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        /// Name of the snapshot.
        snapshot_name: Option<String> = {"nullable": true},
        /// Name of the restored volume.
        restore_name: Option<String> = {"nullable": true},
        /// Name of the new virtual machine.
        target_name: Option<String> = {"nullable": true},
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
