//! Which machines of a pool a policy takes, and in which order: pure.

use std::cmp::Reverse;

use serde_json::Value;
use virt::api::pool::VirtualMachinePoolSelectionPolicy;

use super::machine::index_of;
use crate::object::{self, name, text};
use crate::selector;

/// The machines that a policy applies to; all if there is no policy.
pub(super) fn selected<'a>(
    policy: Option<&VirtualMachinePoolSelectionPolicy>,
    mut chosen: Vec<&'a Value>,
) -> Vec<&'a Value> {
    let Some(selectors) = policy.and_then(|policy| policy.selectors.as_ref()) else {
        return chosen;
    };
    if let Some(labels) = &selectors.label_selector {
        chosen.retain(|vm| selector::selects(labels, object::labels(&vm["spec"]["template"])));
    }
    let requirements = &selectors.node_selector_requirement_matcher;
    chosen.retain(|vm| {
        let nodes = &vm["spec"]["template"]["spec"]["nodeSelector"];
        requirements.iter().all(|own| selector::holds(&own.0, nodes))
    });
    chosen
}

/// Machines in the order in which a policy takes them.
pub(super) fn ordered<'a>(
    policy: Option<&VirtualMachinePoolSelectionPolicy>,
    machines: &[&'a Value],
) -> Vec<&'a Value> {
    let mut chosen = selected(policy, machines.to_vec());
    let index = |vm: &&Value| index_of(name(vm)).unwrap_or(usize::MAX);
    let age = |vm: &&Value| text(vm, "/metadata/creationTimestamp").to_owned();
    match policy.and_then(|policy| policy.sort_policy.as_deref()) {
        Some("AscendingOrder") => chosen.sort_by_key(index),
        Some("Oldest") => chosen.sort_by_key(age),
        Some("Newest") => chosen.sort_by_key(|vm| Reverse(age(vm))),
        // Any order is random enough; the highest number leaves no gap.
        _ => chosen.sort_by_key(|vm| Reverse(index(vm))),
    }
    chosen
}
