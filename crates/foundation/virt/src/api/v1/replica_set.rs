//! Sets of equal instances, and presets.

use super::domain::DomainSpec;
use super::machine::VirtualMachineInstanceTemplateSpec;
use crate::api::atom::{LabelSelector, ObjectMeta, Time};
use crate::api::record::record;

record! {
    /// Number of equal instances that are kept running.
    VirtualMachineInstanceReplicaSet {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceReplicaSetSpec,
        status: Option<VirtualMachineInstanceReplicaSetStatus> = {"nullable": true},
    }

    VirtualMachineInstanceReplicaSetSpec {
        /// Desired number of instances; 1 by default.
        replicas: Option<i32>,
        /// Selector of the instances of the set; it must match the labels of the template.
        selector: LabelSelector,
        /// Template of the instances that are created.
        template: VirtualMachineInstanceTemplateSpec,
        /// Whether the set is paused: no instances are created or deleted.
        paused: Option<bool>,
    }

    VirtualMachineInstanceReplicaSetStatus {
        /// Number of instances of the set.
        replicas: Option<i32>,
        /// Number of instances that are ready.
        ready_replicas: Option<i32>,
        conditions: Vec<VirtualMachineInstanceReplicaSetCondition>,
        /// Selector of the instances as a string, for autoscalers.
        label_selector: Option<String>,
    }

    VirtualMachineInstanceReplicaSetCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    /// Values that complete the instances that it selects.
    VirtualMachineInstancePreset {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VirtualMachineInstancePresetSpec>,
    }

    VirtualMachineInstancePresetSpec {
        /// Labels of the instances that the preset is applied to.
        selector: LabelSelector,
        /// Domain settings that are applied to the selected instances.
        domain: Option<DomainSpec>,
    }
}
