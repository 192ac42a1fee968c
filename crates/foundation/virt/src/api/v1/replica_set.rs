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
        selector: LabelSelector,
        template: VirtualMachineInstanceTemplateSpec,
        /// Leaves the set as it is while true.
        paused: Option<bool>,
    }

    VirtualMachineInstanceReplicaSetStatus {
        replicas: Option<i32>,
        ready_replicas: Option<i32>,
        conditions: Vec<VirtualMachineInstanceReplicaSetCondition>,
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
        selector: LabelSelector,
        domain: Option<DomainSpec>,
    }
}
