//! Sets of equal instances, and presets.

use super::domain::DomainSpec;
use super::machine::VirtualMachineInstanceTemplateSpec;
use crate::api::atom::{LabelSelector, ObjectMeta, Time};
use crate::api::record::record;

record! {
    VirtualMachineInstanceReplicaSet {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceReplicaSetSpec,
        status: Option<VirtualMachineInstanceReplicaSetStatus> = {"nullable": true},
    }

    VirtualMachineInstanceReplicaSetSpec {
        /// How many instances there should be; 1 if not set.
        replicas: Option<i32>,
        /// Labels of the instances that belong to the set; they must be those of the template.
        selector: LabelSelector,
        /// What instances look like.
        template: VirtualMachineInstanceTemplateSpec,
        /// Leaves the set as it is while true.
        paused: Option<bool>,
    }

    VirtualMachineInstanceReplicaSetStatus {
        /// How many instances there are.
        replicas: Option<i32>,
        /// How many instances are ready.
        ready_replicas: Option<i32>,
        conditions: Vec<VirtualMachineInstanceReplicaSetCondition>,
        /// The selector as text, for autoscalers.
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

    VirtualMachineInstancePreset {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VirtualMachineInstancePresetSpec>,
    }

    VirtualMachineInstancePresetSpec {
        /// Labels of the instances that the preset is applied to.
        selector: LabelSelector,
        /// Settings for those instances.
        domain: Option<DomainSpec>,
    }
}
