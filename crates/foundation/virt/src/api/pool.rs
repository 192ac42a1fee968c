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
        /// What is wanted.
        spec: VirtualMachinePoolSpec,
        /// What is observed.
        status: Option<VirtualMachinePoolStatus>,
    }

    VirtualMachineTemplateSpec {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Specification of the virtual machines.
        spec: Option<v1::VirtualMachineSpec>,
    }

    VirtualMachinePoolCondition {
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

    VirtualMachinePoolStatus {
        /// Number of virtual machines.
        replicas: Option<i32>,
        /// Number of virtual machines that are ready.
        ready_replicas: Option<i32>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<VirtualMachinePoolCondition> = {"x-kubernetes-list-type": "atomic"},
        /// Labels that select objects.
        label_selector: Option<String>,
    }

    VirtualMachinePoolSpec {
        /// How many machines there should be; 1 if not set.
        replicas: Option<i32> = {"minimum": 0},
        /// Labels of the virtual machines of the pool.
        selector: LabelSelector,
        /// The machine that is created; its name ends in an index.
        virtual_machine_template: VirtualMachineTemplateSpec,
        /// Leaves the pool as it is while true.
        paused: Option<bool>,
        /// How names are generated.
        name_generation: Option<VirtualMachinePoolNameGeneration>,
        /// How many machines may be away during an update: a number or a percentage.
        max_unavailable: Option<IntOrString>,
        /// Which virtual machines are removed when the pool shrinks.
        scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
        /// How virtual machines are updated when the template changes.
        update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
        /// When virtual machines that fail are replaced.
        autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    }

    VirtualMachinePoolAutohealingStrategy {
        /// Failed starts before a virtual machine is replaced.
        start_up_failure_threshold: Option<u32> = {"minimum": 1},
        /// How long a virtual machine has to fail before it is replaced.
        min_failing_to_start_duration: Option<Duration>,
    }

    VirtualMachinePoolNameGeneration {
        /// Append the number of the virtual machine to names of ConfigMaps.
        append_index_to_config_map_refs: Option<bool>,
        /// Append the number of the virtual machine to names of Secrets.
        append_index_to_secret_refs: Option<bool>,
    }

    VirtualMachinePoolScaleInStrategy {
        /// Leave the virtual machines alone.
        unmanaged: Option<Empty>,
        /// Act when a virtual machine stops.
        opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
        /// Act at once.
        proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    }

    VirtualMachinePoolOpportunisticScaleInStrategy {
        /// Disabled, Offline or Online: whether volumes are kept.
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolProactiveScaleInStrategy {
        /// Which virtual machines come first.
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
        /// Disabled, Offline or Online: whether volumes are kept.
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolSelectionPolicy {
        /// Order of the virtual machines: Random, AscendingOrder, DescendingOrder, Newest or Oldest.
        sort_policy: Option<String> = {"enum": ["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"]},
        /// Which objects are selected.
        selectors: Option<VirtualMachinePoolSelectors>,
    }

    VirtualMachinePoolSelectors {
        /// Labels that select objects.
        label_selector: Option<LabelSelector>,
        /// Nodes whose virtual machines are selected.
        node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
    }

    VirtualMachinePoolUpdateStrategy {
        /// Leave the virtual machines alone.
        unmanaged: Option<Empty>,
        /// Act when a virtual machine stops.
        opportunistic: Option<Empty>,
        /// Act at once.
        proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    }

    VirtualMachinePoolProactiveUpdateStrategy {
        /// Which virtual machines come first.
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    }
}
