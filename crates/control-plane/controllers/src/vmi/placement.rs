//! Which node an instance is placed on, or in the scheduler's words why on none: pure.
//!
//! A node is judged by one rule after the other, and the first that it breaks is its reason,
//! as in the scheduler of Kubernetes, whose texts people and their tools know.

mod neighbours;
mod taint;

use std::collections::BTreeMap;

use hci::cpu_manager::{CpuPolicy, LABEL};
use serde_json::Value;
use types::Quantity;
use virt::reason::{INSUFFICIENT, Unfit};

use super::requests::Requests;
use crate::object::{entries, int, is_true, label, labels, list, name, quantity, text};
use crate::{condition, selector};

/// An instance that wants a place.
#[derive(Debug)]
pub(crate) struct SchedulingRequest<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) labels: &'a Value,
    pub(crate) spec: &'a Value,
    pub(crate) requests: &'a Requests,
    /// Where its volumes can be reached from.
    pub(crate) reach: &'a [VolumeReach],
}

/// From where one volume can be reached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VolumeReach {
    /// A `NodeSelector`.
    Nodes(Value),
    /// The node on which it is being made.
    Node(String),
}

/// An instance that has a place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScheduledInstance {
    pub(crate) namespace: String,
    pub(crate) labels: Value,
    pub(crate) node: String,
    pub(crate) requests: Requests,
    /// Terms of required anti-affinity, which also keep others away.
    pub(crate) repels: Vec<Value>,
}

/// Why no node can take an instance, in the scheduler's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchedulingError {
    #[error("{}", Unfit::NoNodes.as_str())]
    NoNodes,
    #[error("0/{nodes} nodes are available: {}.", reasons.join(", "))]
    NoneFits {
        nodes: usize,
        /// Each with the number of nodes that it excludes.
        reasons: Vec<String>,
    },
}

/// The best node.
pub(crate) fn choose<'a>(
    wish: &SchedulingRequest<'_>,
    nodes: &'a [Value],
    tenants: &[&ScheduledInstance],
) -> Result<&'a str, SchedulingError> {
    if nodes.is_empty() {
        return Err(SchedulingError::NoNodes);
    }
    let neighbours = neighbours::AffinityIndex::new(nodes, tenants);
    let mut reasons = BTreeMap::<String, usize>::new();
    let mut best: Option<((i64, i64), &Value)> = None;
    for node in nodes {
        let broken = broken_rules(wish, node, tenants, &neighbours);
        if broken.is_empty() {
            let score = score(wish, node, tenants, &neighbours);
            if best.is_none_or(|(known, _)| score > known) {
                best = Some((score, node));
            }
        }
        for reason in broken {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    match best {
        Some((_, node)) => Ok(name(node)),
        None => {
            let mut reasons: Vec<String> =
                reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            reasons.sort();
            Err(SchedulingError::NoneFits { nodes: nodes.len(), reasons })
        }
    }
}

fn broken_rules(
    wish: &SchedulingRequest<'_>,
    node: &Value,
    tenants: &[&ScheduledInstance],
    neighbours: &neighbours::AffinityIndex<'_>,
) -> Vec<String> {
    let tolerations = list(wish.spec, "/tolerations");
    let one = |unfit: Unfit| vec![unfit.as_str().to_owned()];
    if is_true(node, "/spec/unschedulable") && !taint::tolerates_unschedulable(tolerations) {
        return one(Unfit::Cordoned);
    }
    if taint::repels(node, tolerations) || !is_ready(node) {
        return one(Unfit::Tainted);
    }
    if !is_wanted(wish.spec, node) {
        return one(Unfit::NotSelected);
    }
    let missing = missing_resources(wish.requests, node, tenants);
    if !missing.is_empty() {
        return missing;
    }
    if !wish.reach.iter().all(|reach| is_reachable(reach, node)) {
        return one(Unfit::VolumeElsewhere);
    }
    neighbours.objection(wish, node).map(one).unwrap_or_default()
}

/// Upstream a controller taints nodes that are not ready; here the condition is enough.
fn is_ready(node: &Value) -> bool {
    condition::is(node, "Ready", "True") && label(node, "kubevirt.io/schedulable") != Some("false")
}

fn is_wanted(spec: &Value, node: &Value) -> bool {
    let labels = labels(node);
    let selected = spec.get("nodeSelector").is_none_or(|own| selector::contains(own, labels));
    let required =
        spec["affinity"]["nodeAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution");
    selected
        && has_architecture(spec, labels)
        && has_processors(spec, labels)
        && required.is_none_or(|own| selector::matches_node(own, node))
}

/// A node that does not report its architecture may have any.
fn has_architecture(spec: &Value, labels: &Value) -> bool {
    let wanted = text(spec, "/architecture");
    let own = labels.get("kubernetes.io/arch").and_then(Value::as_str);
    wanted.is_empty() || own.is_none_or(|own| own == wanted)
}

/// Dedicated processors are had where the CPU manager was not switched off.
fn has_processors(spec: &Value, labels: &Value) -> bool {
    let is_off = labels.get(LABEL).is_some_and(|own| own == CpuPolicy::None.label());
    !is_off || !is_true(spec, "/domain/cpu/dedicatedCpuPlacement")
}

fn is_reachable(reach: &VolumeReach, node: &Value) -> bool {
    match reach {
        VolumeReach::Nodes(selector) => selector::matches_node(selector, node),
        VolumeReach::Node(wanted) => wanted == name(node),
    }
}

fn missing_resources(
    requests: &Requests,
    node: &Value,
    tenants: &[&ScheduledInstance],
) -> Vec<String> {
    let here: Vec<&ScheduledInstance> =
        tenants.iter().filter(|tenant| tenant.node == name(node)).copied().collect();
    let mut missing = Vec::new();
    let count = i64::try_from(here.len()).unwrap_or(i64::MAX);
    if quantity(node, "/status/allocatable/pods").is_some_and(|most| most.units() <= count) {
        missing.push(Unfit::Full.as_str().to_owned());
    }
    for (resource, wanted) in requests {
        let free = free(resource, node, &here);
        if !wanted.is_zero() && *wanted > free {
            missing.push(format!("{INSUFFICIENT}{resource}"));
        }
    }
    missing
}

fn free(resource: &str, node: &Value, here: &[&ScheduledInstance]) -> Quantity {
    let allocatable = entries(node, "/status/allocatable")
        .find(|(key, _)| *key == resource)
        .and_then(|(_, value)| Quantity::from_json(value).ok());
    let mut free = allocatable.unwrap_or_else(|| Quantity::from_units(0));
    for tenant in here {
        if let Some(taken) = tenant.requests.get(resource) {
            free -= taken;
        }
    }
    free
}

/// Preferences first, then the free memory, in thousandths.
fn score(
    wish: &SchedulingRequest<'_>,
    node: &Value,
    tenants: &[&ScheduledInstance],
    neighbours: &neighbours::AffinityIndex<'_>,
) -> (i64, i64) {
    let preferred = "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let weight: i64 = list(wish.spec, preferred)
        .iter()
        .filter(|own| {
            selector::matches_node_term(own.get("preference").unwrap_or(&Value::Null), node)
        })
        .map(|own| int(own, "/weight").unwrap_or_default())
        .sum();
    let here: Vec<&ScheduledInstance> =
        tenants.iter().filter(|tenant| tenant.node == name(node)).copied().collect();
    let all = quantity(node, "/status/allocatable/memory").map_or(0, |all| all.units()).max(1);
    let left = i128::from(free("memory", node, &here).units()) * 1000 / i128::from(all);
    (weight + neighbours.attraction(wish, node), i64::try_from(left).unwrap_or_default())
}

/// The label of a node that a term counts by.
fn domain<'a>(node: &'a Value, term: &Value) -> Option<&'a str> {
    label(node, text(term, "/topologyKey"))
}

#[cfg(test)]
mod tests;
