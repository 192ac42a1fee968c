//! A volume goes in an order in which nothing is left behind: engine, replicas, snapshots, and
//! then the object. Pure.
//!
//! Nodes hold their instances until files and sockets are gone. What is on no node, or on one
//! that is gone, is let go here.

use hci::longhorn::FINALIZER;
use serde_json::{Value, json};

use super::place::{Life, Places};
use super::plan::{Action, Plan, Seen};
use crate::longhorn::{ATTACHMENTS, BACKINGS, ENGINES, REPLICAS, SNAPSHOTS};
use crate::object::{self, has_finalizer, is_deleting, name, text};
use crate::resource::Resource;

pub(super) fn plan(seen: &Seen<'_>) -> Plan {
    let mut plan = Plan::default();
    let volume = seen.volume;
    if text(volume, "/status/state") != "deleting" {
        let told = json!({"status": {"state": "deleting"}});
        plan.actions.push(Action::Tell(BACKINGS, name(volume).to_owned(), told));
    }
    let engines = seen.engine.into_iter();
    if remove(&mut plan, ENGINES, engines, |own| is_free(own, seen.places)) {
        return plan;
    }
    let replicas = seen.replicas.iter();
    if remove(&mut plan, REPLICAS, replicas, |own| is_free(own, seen.places)) {
        return plan;
    }
    // Their data went with the replicas, so that nobody has to be waited for.
    remove(&mut plan, SNAPSHOTS, seen.snapshots.iter(), |_| true);
    if let Some(attachment) = seen.attachment {
        plan.actions.push(Action::Delete(ATTACHMENTS, attachment.clone()));
    }
    if has_finalizer(volume, FINALIZER) {
        plan.actions.push(release(BACKINGS, volume));
    }
    plan
}

/// Whether there were any. The next look comes when they are gone.
fn remove<'a>(
    plan: &mut Plan,
    resource: Resource,
    objects: impl Iterator<Item = &'a Value>,
    is_free: impl Fn(&Value) -> bool,
) -> bool {
    let mut any = false;
    for own in objects {
        any = true;
        if !is_deleting(own) {
            plan.actions.push(Action::Delete(resource, own.clone()));
        }
        if is_free(own) && has_finalizer(own, FINALIZER) {
            plan.actions.push(release(resource, own));
        }
    }
    any
}

pub(super) fn release(resource: Resource, own: &Value) -> Action {
    let left = object::finalizers_without(own, &[FINALIZER]);
    let patch = json!({"metadata": {"uid": object::uid(own), "finalizers": left}});
    Action::Patch(resource, name(own).to_owned(), patch)
}

/// No node holds it.
fn is_free(own: &Value, places: &Places) -> bool {
    let node = text(own, "/spec/nodeID");
    node.is_empty() || places.life(node) == Life::Gone
}
