//! The next step of an instance until a node takes over, and after that node is lost: pure.
//!
//!   Pending ──claims are there──► Scheduling ──a node is found──► Scheduled ──► the agent's
//!      └── deleted, or a data volume failed ──► Failed
//!
//! Every function answers the merge patch for the instance. All carry the version that was
//! read: a concurrent change, a deletion for instance, makes the write fail.

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::reason::{InstanceFailure, NotReady, NotRestarted, NotSynchronized};

use super::failover;
use super::storage::{Need, Wait, data_volumes_ready, entered};
use crate::condition::{self, Condition};
use crate::object::{self, annotation, finalizers_without, has_finalizer, is_deleting, list, text};

/// Held by whoever has to clean up after the instance.
pub(crate) const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// Held until the virtual machine has seen how the instance ended.
pub(crate) const VM_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
pub(crate) const NODE_LABEL: &str = "kubevirt.io/nodeName";

/// How far an instance has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VmiStage {
    /// It waits for a place.
    Unplaced,
    /// It was deleted before it had one.
    Abandoned,
    /// A node has it.
    Placed,
    Over,
}

pub(crate) fn stage(vmi: &Value) -> VmiStage {
    match text(vmi, "/status/phase") {
        "Succeeded" | "Failed" => VmiStage::Over,
        "" | "Pending" | "Scheduling" if is_deleting(vmi) => VmiStage::Abandoned,
        "" | "Pending" | "Scheduling" => VmiStage::Unplaced,
        _ => VmiStage::Placed,
    }
}

/// It waits for its storage.
pub(crate) fn waiting(vmi: &Value, needs: &[Need], wait: &Wait, now: Timestamp) -> Value {
    let mut conditions = condition::of(vmi);
    condition::set(&mut conditions, &not_scheduled(), now);
    if let Some(ready) = data_volumes_ready(needs) {
        condition::set(&mut conditions, &ready, now);
    }
    match wait {
        Wait::Missing(claim) => {
            let message = missing_message(vmi, claim);
            let unsynchronized = Condition::new("Synchronized", "False");
            let unscheduled = Condition::new("PodScheduled", "False");
            condition::remove(&mut conditions, "Provisioning");
            condition::set(
                &mut conditions,
                &unsynchronized.because(NotSynchronized::PvcNotFound.as_str(), &*message),
                now,
            );
            condition::set(&mut conditions, &unscheduled.because("Unschedulable", message), now);
        }
        Wait::Filling | Wait::Binding => {
            condition::remove(&mut conditions, "Synchronized");
            condition::remove(&mut conditions, "PodScheduled");
            condition::set(&mut conditions, &Condition::new("Provisioning", "True"), now);
        }
    }
    patch(vmi, "Pending", conditions, now)
}

pub(crate) fn missing_message(vmi: &Value, claim: &str) -> String {
    let namespace = object::namespace(vmi);
    format!("PVC {namespace}/{claim} does not exist, waiting for it to appear")
}

/// No node is fit.
pub(crate) fn unschedulable(vmi: &Value, message: &str, now: Timestamp) -> Value {
    let mut conditions = condition::of(vmi);
    condition::set(&mut conditions, &not_scheduled(), now);
    for over in ["Synchronized", "Provisioning"] {
        condition::remove(&mut conditions, over);
    }
    let unscheduled = Condition::new("PodScheduled", "False").because("Unschedulable", message);
    condition::set(&mut conditions, &unscheduled, now);
    patch(vmi, "Scheduling", conditions, now)
}

/// Something about it was refused, and may be accepted later.
pub(crate) fn refused(
    vmi: &Value,
    reason: NotSynchronized,
    message: &str,
    now: Timestamp,
) -> Value {
    let mut conditions = condition::of(vmi);
    let unsynchronized = Condition::new("Synchronized", "False").because(reason.as_str(), message);
    condition::set(&mut conditions, &unsynchronized, now);
    patch(vmi, &text_or(text(vmi, "/status/phase"), "Pending"), conditions, now)
}

/// A node is found and will be notified.
pub(crate) fn scheduling(vmi: &Value, needs: &[Need], now: Timestamp) -> Value {
    let mut conditions = condition::of(vmi);
    condition::set(&mut conditions, &not_scheduled(), now);
    if let Some(ready) = data_volumes_ready(needs) {
        condition::set(&mut conditions, &ready, now);
    }
    for over in ["Synchronized", "PodScheduled", "Provisioning"] {
        condition::remove(&mut conditions, over);
    }
    let mut patch = patch(vmi, "Scheduling", conditions, now);
    if !has_finalizer(vmi, FINALIZER) {
        let mut finalizers = list(vmi, "/metadata/finalizers").to_vec();
        finalizers.push(json!(FINALIZER));
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    patch
}

/// The node has it from here on. `pod` has the ratio of the configuration.
pub(crate) fn scheduled(vmi: &Value, node: &str, pod: &Value, now: Timestamp) -> Value {
    let mut conditions = condition::of(vmi);
    let ready = Condition::new("Ready", "False")
        .because(NotReady::NotRunning.as_str(), "Guest VM is not reported as running");
    condition::set(&mut conditions, &ready, now);
    let mut patch = patch(vmi, "Scheduled", conditions, now);
    patch["metadata"]["labels"] = json!({NODE_LABEL: node});
    let ratio = annotation(pod, virt::OVERHEAD_RATIO);
    patch["metadata"]["annotations"] = json!({virt::OVERHEAD_RATIO: ratio});
    let status = &mut patch["status"];
    status["nodeName"] = json!(node);
    status["activePods"] = json!({object::uid(pod): node});
    status["migrationTransport"] = json!("Unix");
    if let Some(class) = pod["status"].get("qosClass") {
        status["qosClass"] = class.clone();
    }
    patch
}

/// It will never run, or does not any more. No other party will clean up.
pub(crate) fn failed(vmi: &Value, reason: Option<InstanceFailure>, now: Timestamp) -> Value {
    let mut conditions = condition::of(vmi);
    let ready = Condition::new("Ready", "False");
    let ready = ready.because(NotReady::Terminating.as_str(), "virt-launcher pod is terminating");
    condition::set(&mut conditions, &ready, now);
    let mut patch = patch(vmi, "Failed", conditions, now);
    if let Some(reason) = reason {
        patch["status"]["reason"] = json!(reason.as_str());
    }
    patch["metadata"]["finalizers"] = json!(finalizers_without(vmi, &[FINALIZER]));
    patch
}

/// Asks the node to shut the guest down by `deadline`; nothing if it was asked already.
pub(crate) fn evicted(vmi: &Value, deadline: Timestamp) -> Option<Value> {
    if is_evicted(vmi) {
        return None;
    }
    let mut meta = object::version(vmi);
    let annotations = json!({virt::SHUT_DOWN_BY: clock::rfc3339(deadline)});
    meta.insert("annotations".into(), annotations);
    Some(json!({"metadata": meta}))
}

/// Whether the node was asked to shut the guest down.
pub(crate) fn is_evicted(vmi: &Value) -> bool {
    object::annotation(vmi, virt::SHUT_DOWN_BY).is_some()
}

/// When the grace period of a pod that is being deleted ends.
pub(crate) fn deadline(pod: &Value, now: Timestamp) -> Timestamp {
    // The API server adds the grace period to the time of the request.
    text(pod, "/metadata/deletionTimestamp").parse().unwrap_or(now)
}

/// When a grace period ends that begins now.
pub(crate) fn full_grace(vmi: &Value, now: Timestamp) -> Timestamp {
    let seconds = object::int(vmi, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
    now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now)
}

/// Removes the finalizers of an instance that is over if no party is left for them.
pub(crate) fn released(vmi: &Value, has_owner: bool, node_is_lost: bool) -> Option<Value> {
    let mut unwanted = Vec::new();
    if !has_owner {
        unwanted.push(VM_FINALIZER);
    }
    if node_is_lost || text(vmi, "/status/nodeName").is_empty() {
        unwanted.push(FINALIZER);
    }
    unwanted.retain(|own| has_finalizer(vmi, own));
    if unwanted.is_empty() {
        return None;
    }
    let mut meta = object::version(vmi);
    meta.insert("finalizers".into(), json!(finalizers_without(vmi, &unwanted)));
    Some(json!({"metadata": meta}))
}

/// The virtual machine that controls the instance.
pub(crate) fn owner(vmi: &Value) -> Option<&str> {
    let owner = object::controller(vmi)?;
    (text(owner, "/kind") == "VirtualMachine").then(|| text(owner, "/uid"))
}

/// It stays with its lost node; nothing if it says so already.
pub(crate) fn stays(
    vmi: &Value,
    node: &str,
    reason: NotRestarted,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let mut conditions = condition::of(vmi);
    let before = conditions.clone();
    let stays = Condition::new(failover::CONDITION, "False").because(reason.as_str(), message);
    condition::set(&mut conditions, &stays, now);
    let silent = format!("node {node} is lost; the guest may still run there");
    let unready = Condition::new("Ready", "False").because(NotReady::NodeSilent.as_str(), silent);
    condition::set(&mut conditions, &unready, now);
    (conditions != before)
        .then(|| json!({"metadata": object::version(vmi), "status": {"conditions": conditions}}))
}

/// Its node was lost and is back; nothing if it does not say that it was lost.
pub(crate) fn back_with_its_node(vmi: &Value) -> Option<Value> {
    let mut conditions = condition::of(vmi);
    condition::find(&conditions, failover::CONDITION)?;
    condition::remove(&mut conditions, failover::CONDITION);
    Some(json!({"metadata": object::version(vmi), "status": {"conditions": conditions}}))
}

fn not_scheduled() -> Condition {
    Condition::new("Ready", "False")
        .because(NotReady::NotScheduled.as_str(), "virt-launcher pod has not yet been scheduled")
}

fn patch(vmi: &Value, phase: &str, conditions: Vec<Value>, now: Timestamp) -> Value {
    json!({"metadata": object::version(vmi), "status": {"phase": phase,
        "phaseTransitionTimestamps": entered(vmi, phase, now), "conditions": conditions}})
}

fn text_or(text: &str, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
