//! `clone.kubevirt.io`: copies of machines.

use crate::api::atom::{Map, ObjectMeta, Time, TypedLocalObjectReference};
use crate::api::record::record;

record! {
    /// Copy of a machine and its disks.
    VirtualMachineClone {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired clone: its source, target and changes.
        spec: VirtualMachineCloneSpec,
        /// Observed progress of the clone.
        status: Option<VirtualMachineCloneStatus>,
    }

    VirtualMachineCloneTemplateFilters {
        /// Patterns of the template's annotations that are copied; `!` before a pattern excludes.
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Patterns of the template's labels that are copied; `!` before a pattern excludes.
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineCloneSpec {
        /// VirtualMachine or VirtualMachineSnapshot that is cloned.
        source: TypedLocalObjectReference,
        /// VirtualMachine that is created.
        target: Option<TypedLocalObjectReference>,
        /// Patterns of the annotations that are copied; `!` before a pattern excludes.
        annotation_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Patterns of the labels that are copied; `!` before a pattern excludes.
        label_filters: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Filters for the labels and annotations of the instance template.
        template: Option<VirtualMachineCloneTemplateFilters>,
        /// MAC addresses of the new virtual machine, by name of the interface.
        new_mac_addresses: Map<String>,
        /// SMBIOS serial number of the new virtual machine.
        new_sm_bios_serial as "newSMBiosSerial": Option<String>,
        /// JSON patches that are applied to the new virtual machine.
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Naming of the new volumes: RandomizeNames or PrefixTargetName.
        volume_name_policy: Option<String> = {"enum": ["RandomizeNames", "PrefixTargetName"]},
    }

    VirtualMachineCloneStatus {
        /// When the clone was completed.
        creation_time: Option<Time> = {"nullable": true},
        /// Phase of the clone, for example SnapshotInProgress, RestoreInProgress or Succeeded.
        phase: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        /// Name of the VirtualMachineSnapshot that was taken of the source.
        snapshot_name: Option<String> = {"nullable": true},
        /// Name of the VirtualMachineRestore that creates the target.
        restore_name: Option<String> = {"nullable": true},
        /// Name of the new virtual machine.
        target_name: Option<String> = {"nullable": true},
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
