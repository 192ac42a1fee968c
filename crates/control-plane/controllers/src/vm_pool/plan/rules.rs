//! The rules of a pool: its spec beside the number and the template of its machines.

use serde_json::Value;
use virt::api::atom::IntOrString;
use virt::api::pool::{
    VirtualMachinePoolAutohealingStrategy, VirtualMachinePoolNameGeneration,
    VirtualMachinePoolProactiveScaleInStrategy, VirtualMachinePoolScaleInStrategy,
    VirtualMachinePoolSelectionPolicy, VirtualMachinePoolUpdateStrategy,
};

use crate::object::read;
use crate::record::fields;

fields! {
    /// The rules of a pool. Its template is not read: it is only copied.
    pub(super) struct PoolRules {
        paused: Option<bool>,
        max_unavailable: Option<IntOrString>,
        scale_in_strategy: VirtualMachinePoolScaleInStrategy,
        update_strategy: VirtualMachinePoolUpdateStrategy,
        autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
        name_generation: VirtualMachinePoolNameGeneration,
    }
}

impl PoolRules {
    pub(super) fn of(pool: &Value) -> Self {
        read(&pool["spec"])
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused == Some(true)
    }

    fn proactive_scale_in(&self) -> Option<&VirtualMachinePoolProactiveScaleInStrategy> {
        self.scale_in_strategy.proactive.as_ref()
    }

    /// Whether the disks of a machine that is given up wait for the next one of its number.
    pub(super) fn keeps_disks(&self) -> bool {
        let kept = self.proactive_scale_in().and_then(|own| own.state_preservation.as_deref());
        // Memory is not kept yet, neither by upstream.
        matches!(kept, Some("Offline" | "Online"))
    }

    /// Whether machines that are too many are deleted.
    pub(super) fn scales_in(&self) -> bool {
        let strategy = &self.scale_in_strategy;
        strategy.unmanaged.is_none() && strategy.opportunistic.is_none()
    }

    /// Which machines are given up first.
    pub(super) fn scale_in_policy(&self) -> Option<&VirtualMachinePoolSelectionPolicy> {
        self.proactive_scale_in()?.selection_policy.as_ref()
    }

    /// Whether machines follow the template at all.
    pub(super) fn updates(&self) -> bool {
        self.update_strategy.unmanaged.is_none()
    }

    /// Opportunistic updates: running instances get a new template at their next restart.
    pub(super) fn updates_lazily(&self) -> bool {
        self.update_strategy.opportunistic.is_some()
    }

    /// Which machines follow the template, and in which order.
    pub(super) fn update_policy(&self) -> Option<&VirtualMachinePoolSelectionPolicy> {
        self.update_strategy.proactive.as_ref()?.selection_policy.as_ref()
    }

    /// How many of `wanted` machines may be away during an update.
    pub(super) fn max_unavailable(&self, wanted: usize) -> usize {
        let share = |percent: usize| (wanted * percent).div_ceil(100);
        match self.max_unavailable.as_ref().map(|own| &own.0) {
            Some(Value::Number(count)) => {
                usize::try_from(count.as_u64().unwrap_or_default()).unwrap_or(wanted)
            }
            Some(Value::String(text)) => {
                let percent = text.strip_suffix('%').and_then(|own| own.parse().ok());
                percent.map_or_else(|| text.parse().unwrap_or(wanted), share)
            }
            _ => wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(spec: Value) -> PoolRules {
        PoolRules::of(&json!({"spec": spec}))
    }

    #[test]
    fn how_many_may_be_away_is_a_number_or_a_share() {
        let of_five = |value: Value| rules(json!({"maxUnavailable": value})).max_unavailable(5);
        for (given, expected) in [
            (json!(2), 2),
            (json!("2"), 2),
            (json!("25%"), 2),
            (json!("100%"), 5),
            (json!("x"), 5),
            (json!(null), 5),
        ] {
            assert_eq!(of_five(given.clone()), expected, "{given}");
        }
        assert_eq!(rules(json!({})).max_unavailable(5), 5);
    }

    #[test]
    fn a_template_or_a_rule_that_cannot_be_read_leaves_the_other_rules() {
        let rules = rules(json!({"virtualMachineTemplate": {"spec": {"template": 1}},
            "paused": true, "autohealing": {"startUpFailureThreshold": "many"},
            "updateStrategy": {"unmanaged": {}}, "scaleInStrategy": {"opportunistic": {}}}));
        assert!(rules.is_paused() && !rules.updates() && !rules.scales_in());
        assert_eq!(rules.autohealing, None);
    }
}
