//! Removal of a volume in an order in which nothing is left behind: engine, replicas, snapshots,
//! and then the object. Pure.
//!
//! Nodes keep the finalizers of their instances until files and sockets are gone. Instances that
//! are on no node, or on one that is gone, are released here.

use hci::longhorn::FINALIZER;
use serde_json::{Value, json};

use super::place::{NodeHealth, ReplicaPlacements};
use super::plan::{VolumeAction, VolumeInput, VolumePlan};
use crate::longhorn::record::{ReplicaFields, VolumeFields};
use crate::longhorn::{ATTACHMENTS, ENGINES, LONGHORN_VOLUMES, REPLICAS, SNAPSHOTS};
use crate::object::{self, has_finalizer, is_deleting, name, read};
use crate::resource::Resource;

pub(super) fn plan(seen: &VolumeInput<'_>) -> VolumePlan {
    let mut plan = VolumePlan::default();
    let volume = seen.volume;
    if read::<VolumeFields<'_>>(volume).status.state != "deleting" {
        let patch = json!({"status": {"state": "deleting"}});
        plan.actions.push(VolumeAction::PatchStatus(
            LONGHORN_VOLUMES,
            name(volume).to_owned(),
            patch,
        ));
    }
    let engines = seen.engine.into_iter();
    if remove(&mut plan, ENGINES, engines, |own| is_free(own, seen.places)) {
        return plan;
    }
    let replicas = seen.replicas.iter();
    if remove(&mut plan, REPLICAS, replicas, |own| is_free(own, seen.places)) {
        return plan;
    }
    // Their data went with the replicas, so that no other party has to be waited for.
    remove(&mut plan, SNAPSHOTS, seen.snapshots.iter(), |_| true);
    if let Some(attachment) = seen.attachment {
        plan.actions.push(VolumeAction::Delete(ATTACHMENTS, attachment.clone()));
    }
    if has_finalizer(volume, FINALIZER) {
        plan.actions.push(release(LONGHORN_VOLUMES, volume));
    }
    plan
}

/// Whether there were any. The next reconciliation comes when they are gone.
fn remove<'a>(
    plan: &mut VolumePlan,
    resource: Resource,
    objects: impl Iterator<Item = &'a Value>,
    is_free: impl Fn(&Value) -> bool,
) -> bool {
    let mut any = false;
    for own in objects {
        any = true;
        if !is_deleting(own) {
            plan.actions.push(VolumeAction::Delete(resource, own.clone()));
        }
        if is_free(own) && has_finalizer(own, FINALIZER) {
            plan.actions.push(release(resource, own));
        }
    }
    any
}

pub(super) fn release(resource: Resource, own: &Value) -> VolumeAction {
    let left = object::finalizers_without(own, &[FINALIZER]);
    let patch = json!({"metadata": {"uid": object::uid(own), "finalizers": left}});
    VolumeAction::Patch(resource, name(own).to_owned(), patch)
}

/// No node holds the engine or replica: both name their node alike.
fn is_free(own: &Value, places: &ReplicaPlacements) -> bool {
    let node = read::<ReplicaFields<'_>>(own).spec.node_id;
    node.is_empty() || places.life(node) == NodeHealth::Gone
}
