//! `pool.kubevirt.io`: sets of equal virtual machines.

use crate::api::atom::{
    Duration, Empty, IntOrString, LabelSelector, NodeSelectorRequirement, ObjectMeta, Time,
};
use crate::api::record::record;
use crate::api::v1;

record! {
    VirtualMachinePool {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachinePoolSpec,
        status: Option<VirtualMachinePoolStatus>,
    }

    VirtualMachineTemplateSpec {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        spec: Option<v1::VirtualMachineSpec>,
    }

    VirtualMachinePoolCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    VirtualMachinePoolStatus {
        replicas: Option<i32>,
        ready_replicas: Option<i32>,
        conditions: Vec<VirtualMachinePoolCondition> = {"x-kubernetes-list-type": "atomic"},
        label_selector: Option<String>,
    }

    VirtualMachinePoolSpec {
        /// How many machines there should be; 1 if not set.
        replicas: Option<i32> = {"minimum": 0},
        selector: LabelSelector,
        /// The machine that is created; its name ends in an index.
        virtual_machine_template: VirtualMachineTemplateSpec,
        /// Leaves the pool as it is while true.
        paused: Option<bool>,
        name_generation: Option<VirtualMachinePoolNameGeneration>,
        /// How many machines may be away during an update: a number or a percentage.
        max_unavailable: Option<IntOrString>,
        scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
        update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
        autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    }

    VirtualMachinePoolAutohealingStrategy {
        start_up_failure_threshold: Option<u32> = {"minimum": 1},
        min_failing_to_start_duration: Option<Duration>,
    }

    VirtualMachinePoolNameGeneration {
        append_index_to_config_map_refs: Option<bool>,
        append_index_to_secret_refs: Option<bool>,
    }

    VirtualMachinePoolScaleInStrategy {
        unmanaged: Option<Empty>,
        opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
        proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    }

    VirtualMachinePoolOpportunisticScaleInStrategy {
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolProactiveScaleInStrategy {
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolSelectionPolicy {
        sort_policy: Option<String> = {"enum": ["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"]},
        selectors: Option<VirtualMachinePoolSelectors>,
    }

    VirtualMachinePoolSelectors {
        label_selector: Option<LabelSelector>,
        node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
    }

    VirtualMachinePoolUpdateStrategy {
        unmanaged: Option<Empty>,
        opportunistic: Option<Empty>,
        proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    }

    VirtualMachinePoolProactiveUpdateStrategy {
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    }
}
