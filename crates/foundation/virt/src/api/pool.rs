//! `pool.kubevirt.io`: sets of equal virtual machines.

use crate::api::atom::{
    Duration, Empty, IntOrString, LabelSelector, NodeSelectorRequirement, ObjectMeta, Time,
};
use crate::api::record::record;
use crate::api::v1;

record! {
    /// Number of equal machines, each with its own disks.
    VirtualMachinePool {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired number, template and update strategy of the virtual machines.
        spec: VirtualMachinePoolSpec,
        /// Observed virtual machines of the pool.
        status: Option<VirtualMachinePoolStatus>,
    }

    VirtualMachineTemplateSpec {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Specification of the virtual machines that are created.
        spec: Option<v1::VirtualMachineSpec>,
    }

    VirtualMachinePoolCondition {
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

    VirtualMachinePoolStatus {
        /// Number of virtual machines of the pool.
        replicas: Option<i32>,
        /// Number of virtual machines that are ready.
        ready_replicas: Option<i32>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<VirtualMachinePoolCondition> = {"x-kubernetes-list-type": "atomic"},
        /// Selector of the virtual machines as a string, for autoscalers.
        label_selector: Option<String>,
    }

    VirtualMachinePoolSpec {
        /// Desired number of virtual machines; 1 by default.
        replicas: Option<i32> = {"minimum": 0},
        /// Selector of the virtual machines that belong to the pool.
        selector: LabelSelector,
        /// Template of the virtual machines; their names end with an index.
        virtual_machine_template: VirtualMachineTemplateSpec,
        /// Whether the pool is paused: no virtual machines are created, updated or deleted.
        paused: Option<bool>,
        /// Options of the names that are generated.
        name_generation: Option<VirtualMachinePoolNameGeneration>,
        /// Maximum number or percentage of virtual machines that are unavailable during an update.
        max_unavailable: Option<IntOrString>,
        /// Strategy that selects the virtual machines to remove when the pool is scaled in.
        scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
        /// Strategy of updates when the template changes.
        update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
        /// Replacement of virtual machines that fail to start.
        autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    }

    VirtualMachinePoolAutohealingStrategy {
        /// Number of failed starts after which a virtual machine is replaced.
        start_up_failure_threshold: Option<u32> = {"minimum": 1},
        /// Minimum time that a virtual machine has been failing before it is replaced.
        min_failing_to_start_duration: Option<Duration>,
    }

    VirtualMachinePoolNameGeneration {
        /// Whether the index of the virtual machine is appended to the names of its ConfigMaps.
        append_index_to_config_map_refs: Option<bool>,
        /// Whether the index of the virtual machine is appended to the names of its Secrets.
        append_index_to_secret_refs: Option<bool>,
    }

    VirtualMachinePoolScaleInStrategy {
        /// No virtual machines are removed by the pool.
        unmanaged: Option<Empty>,
        /// Virtual machines are removed only after they have stopped.
        opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
        /// Virtual machines are removed at once.
        proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    }

    VirtualMachinePoolOpportunisticScaleInStrategy {
        /// State of removed virtual machines that is kept: Disabled (none), Offline (volumes) or
        /// Online.
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolProactiveScaleInStrategy {
        /// Order in which virtual machines are removed.
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
        /// State of removed virtual machines that is kept: Disabled (none), Offline (volumes) or
        /// Online.
        state_preservation: Option<String> = {"enum": ["Disabled", "Offline", "Online"]},
    }

    VirtualMachinePoolSelectionPolicy {
        /// Sort order of the virtual machines: Random, AscendingOrder, DescendingOrder, Newest or
        /// Oldest.
        sort_policy: Option<String> = {"enum": ["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"]},
        /// Selectors of the virtual machines that the policy applies to; all if absent.
        selectors: Option<VirtualMachinePoolSelectors>,
    }

    VirtualMachinePoolSelectors {
        /// Labels of the instance templates of the selected virtual machines.
        label_selector: Option<LabelSelector>,
        /// Requirements on the node selectors of the selected virtual machines.
        node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
    }

    VirtualMachinePoolUpdateStrategy {
        /// Virtual machines are not updated by the pool.
        unmanaged: Option<Empty>,
        /// Virtual machines are updated at their next restart.
        opportunistic: Option<Empty>,
        /// Virtual machines are updated at once, which restarts them if needed.
        proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    }

    VirtualMachinePoolProactiveUpdateStrategy {
        /// Order in which virtual machines are updated.
        selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    }
}
