//! The next steps of a volume, by all its objects: pure.
//!
//! Actions that a machine waits for are first in a plan, reports are last.

mod report;
mod supply;

use std::time::Duration;

use hci::longhorn::{FINALIZER, NAMESPACE, VOLUME_LABEL};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::copy::ResolvedSource;
use super::instance::{self, patch_if_needed};
use super::place::{NodeHealth, ReplicaPlacements};
use super::replica::{Mode, ReplicaAction, ReplicaSet, wish};
use super::state::{Instance, Robustness, VolumeFacts, VolumeState};
use super::ticket::{self, EVICTION, EXPANSION, stamp};
use crate::event::EventType;
use crate::longhorn::object::bytes;
use crate::longhorn::record::{EngineFields, VolumeFields};
use crate::longhorn::{API, ATTACHMENTS, ENGINES, LONGHORN_VOLUMES, REPLICAS};
use crate::object::{self, is_deleting, name, read};
use crate::resource::Resource;

/// One request, or one event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VolumeAction {
    Create(Resource, Value),
    Patch(Resource, String, Value),
    PatchStatus(Resource, String, Value),
    Delete(Resource, Value),
    Event(EventType, &'static str, String),
}

/// The objects and facts of a volume.
#[derive(Debug)]
pub(super) struct VolumeInput<'a> {
    pub(super) volume: &'a Value,
    pub(super) engine: Option<&'a Value>,
    pub(super) replicas: &'a [Value],
    pub(super) attachment: Option<&'a Value>,
    pub(super) snapshots: &'a [Value],
    pub(super) original: &'a ResolvedSource,
    pub(super) places: &'a ReplicaPlacements,
    pub(super) now: Timestamp,
}

/// The actions, in this order.
#[derive(Debug, Default)]
pub(super) struct VolumePlan {
    pub(super) actions: Vec<VolumeAction>,
    /// Reconcile again by then, whatever happens.
    pub(super) again: Option<Duration>,
    /// A place is missing: more of them would help.
    pub(super) wants_room: bool,
}

impl VolumeInput<'_> {
    pub(super) fn asked(&self) -> usize {
        let asked = read::<VolumeFields<'_>>(self.volume).spec.number_of_replicas.unwrap_or(3);
        usize::try_from(asked).unwrap_or(1).max(1)
    }

    /// Whether a replica may have to be placed, for which the promises on all disks count.
    pub(super) fn needs_places(&self) -> bool {
        let census = ReplicaSet::new(self.replicas, self.engine, self.places);
        let staying = census.usable().filter(|own| !own.leaving).count();
        staying < self.places.wanted(self.asked()) && !is_deleting(self.volume)
    }
}

pub(super) fn plan(seen: &VolumeInput<'_>) -> VolumePlan {
    if is_deleting(seen.volume) {
        return super::removal::plan(seen);
    }
    let mut draft = Draft::new(seen);
    draft.adopt();
    let (Some(object), Some(engine)) = (seen.engine, draft.engine.clone()) else {
        draft.plan.actions.push(VolumeAction::Create(ENGINES, instance::engine(seen.volume)));
        draft.supply(None);
        draft.event(VolumeState::Creating, Robustness::Unknown);
        return draft.plan;
    };
    draft.decide();
    draft.supply(Some(&engine));
    draft.set_replicas(&engine);
    draft.set_engine(object, &engine);
    draft.set_tickets(&engine);
    draft.conclude(&engine);
    draft.plan
}

struct Draft<'a> {
    seen: &'a VolumeInput<'a>,
    volume: VolumeFields<'a>,
    engine: Option<EngineFields<'a>>,
    census: ReplicaSet<'a>,
    wanted: usize,
    /// Where the volume is to be attached.
    node: Option<&'a str>,
    /// The migration target of the machine that uses it.
    target: Option<&'a str>,
    state: VolumeState,
    /// Why there are fewer copies than there should be.
    obstacle: Option<String>,
    clone_status: Option<Value>,
    plan: VolumePlan,
}

impl<'a> Draft<'a> {
    fn new(seen: &'a VolumeInput<'a>) -> Self {
        let census = ReplicaSet::new(seen.replicas, seen.engine, seen.places);
        let volume: VolumeFields<'_> = read(seen.volume);
        let engine: Option<EngineFields<'_>> = seen.engine.map(read);
        let engine_node = engine.as_ref().map_or("", |own| own.spec.node_id);
        let node = ticket::wanted(seen.attachment, engine_node);
        let target = ticket::migration_target(seen.attachment, engine_node);
        // The volume is there already for a machine that has moved: nothing stops in between.
        let moved = volume.spec.migration_node_id;
        let engine_node = match node {
            Some(node) if !moved.is_empty() && node == moved && !engine_node.is_empty() => node,
            _ => engine_node,
        };
        let instance =
            engine.as_ref().map_or(Instance::Unmade, |own| engine_state(own, seen.places));
        let still = instance.is_still()
            && engine_node.is_empty()
            && census
                .0
                .iter()
                .all(|own| own.state != Instance::Running || own.life != NodeHealth::Alive);
        let facts = VolumeFacts {
            deleting: false,
            made: seen.engine.is_some(),
            wanted: node,
            engine: instance,
            engine_node,
            still,
        };
        let mut state = VolumeState::read(volume.status.state);
        loop {
            let next = state.next(facts);
            if next == state {
                break;
            }
            state = next;
        }
        let wanted = seen.places.wanted(seen.asked());
        let (obstacle, clone_status) = (None, None);
        Self {
            seen,
            volume,
            engine,
            census,
            wanted,
            node,
            target,
            state,
            obstacle,
            clone_status,
            plan: VolumePlan::default(),
        }
    }

    fn patch(&mut self, resource: Resource, object: &Value, patch: Value) {
        if let Some(patch) = patch_if_needed(object, patch) {
            self.plan.actions.push(VolumeAction::Patch(resource, name(object).to_owned(), patch));
        }
    }

    /// A volume that a user created lacks what ours have.
    fn adopt(&mut self) {
        let volume = self.seen.volume;
        if !object::has_finalizer(volume, FINALIZER) {
            let mut meta = object::version(volume);
            let mut all = object::finalizers_without(volume, &[]);
            all.push(json!(FINALIZER));
            meta.insert("finalizers".into(), all.into());
            meta.insert("labels".into(), json!({VOLUME_LABEL: name(volume)}));
            self.patch(LONGHORN_VOLUMES, volume, json!({"metadata": meta}));
        }
        if self.seen.attachment.is_none() {
            let owner = object::controlled_by(volume, API, "Volume");
            let made = json!({
                "apiVersion": API, "kind": "VolumeAttachment",
                "metadata": {
                    "name": name(volume), "namespace": NAMESPACE,
                    "labels": {VOLUME_LABEL: name(volume)}, "ownerReferences": [owner],
                },
                "spec": {"volume": name(volume), "attachmentTickets": {}},
            });
            self.plan.actions.push(VolumeAction::Create(ATTACHMENTS, made));
        }
    }

    /// Records the engine's and the nodes' states of the replicas.
    fn decide(&mut self) {
        let now = stamp(self.seen.now);
        let mut patches = Vec::new();
        for own in self.census.faults(self.state.is_up()) {
            let spec = json!({"failedAt": now, "lastFailedAt": now, "desireState": "stopped"});
            patches.push((own.object, json!({"spec": spec})));
        }
        for own in self.census.usable() {
            if own.mode == Mode::InSync && !own.healthy {
                let spec = json!({"healthyAt": now, "lastHealthyAt": now, "rebuildRetryCount": 0});
                patches.push((own.object, json!({"spec": spec})));
            }
        }
        for (object, patch) in patches {
            self.patch(REPLICAS, object, patch);
        }
    }

    fn set_replicas(&mut self, engine: &EngineFields<'_>) {
        let up = self.state.is_up();
        let engine_still = engine_state(engine, self.seen.places).is_still();
        let size = self.volume.spec.size;
        let grown = bytes(engine.status.current_size) >= bytes(size);
        let faults: Vec<&str> = self.census.faults(up).iter().map(|own| own.name).collect();
        let mut patches = Vec::new();
        for own in self.census.usable().filter(|own| !faults.contains(&own.name)) {
            let mut spec = json!({});
            if up {
                spec["desireState"] = json!("running");
            } else if engine_still {
                spec["desireState"] = json!("stopped");
            }
            // The size of a replica is written once the engine has grown its files.
            if grown && own.mode == Mode::InSync {
                spec["volumeSize"] = json!(size);
            }
            patches.push((own.object, json!({"spec": spec})));
        }
        for (object, patch) in patches {
            self.patch(REPLICAS, object, patch);
        }
    }

    fn set_engine(&mut self, object: &Value, engine: &EngineFields<'_>) {
        let size = self.volume.spec.size;
        let patch = match self.node.filter(|_| self.state.is_up()) {
            Some(node) => instance::attached_engine(engine, &self.census, size, node),
            None => {
                let still = engine_state(engine, self.seen.places).is_still();
                self.report_for_lost_node(object, engine);
                Some(instance::detached_engine(engine, size, still))
            }
        };
        if let Some(patch) = patch {
            self.patch(ENGINES, object, patch);
        }
        let node = self.node.unwrap_or_default();
        if self.volume.spec.node_id != node {
            self.patch(LONGHORN_VOLUMES, self.seen.volume, json!({"spec": {"nodeID": node}}));
        }
        let target = self.target.filter(|_| self.state == VolumeState::Attached);
        let target = target.unwrap_or_default();
        if self.volume.spec.migration_node_id != target {
            let patch = json!({"spec": {"migrationNodeID": target}});
            self.patch(LONGHORN_VOLUMES, self.seen.volume, patch);
        }
    }

    /// A node that is lost does not say that its engine is over.
    fn report_for_lost_node(&mut self, object: &Value, engine: &EngineFields<'_>) {
        let life = match engine.spec.node_id {
            "" => return,
            node => self.seen.places.life(node),
        };
        if !matches!(life, NodeHealth::Lost | NodeHealth::Gone) {
            return;
        }
        let names = engine.status.replica_mode_map.keys();
        let modes: serde_json::Map<String, Value> =
            names.map(|&name| (name.to_owned(), Value::Null)).collect();
        let patch = json!({"status": {"currentState": "stopped", "started": false, "ownerID": "",
            "endpoint": "", "replicaModeMap": modes}});
        if let Some(patch) = patch_if_needed(object, patch) {
            let name = name(object).to_owned();
            self.plan.actions.push(VolumeAction::PatchStatus(ENGINES, name, patch));
        }
    }

    /// Volumes at rest are brought up for what only an engine can do.
    fn set_tickets(&mut self, engine: &EngineFields<'_>) {
        let Some(attachment) = self.seen.attachment else { return };
        let volume = name(self.seen.volume);
        let place = engine.spec.node_id;
        let is_left = match self.seen.places.life(place) {
            NodeHealth::Gone => !place.is_empty(),
            // Its machine runs on there unless it was started elsewhere.
            NodeHealth::Lost => ticket::is_machine_elsewhere(attachment, place),
            NodeHealth::Alive | NodeHealth::Silent => false,
        };
        if is_left && let Some(patch) = ticket::without(attachment, place) {
            // No agent is left there that could remove them.
            self.plan.actions.push(VolumeAction::Patch(ATTACHMENTS, volume.to_owned(), patch));
        }
        let home = self.census.core().find(|own| own.life == NodeHealth::Alive).map(|own| own.node);
        let home = self.node.or(home);
        let short = self.is_short(engine);
        let leaving = self.census.usable().any(|own| own.leaving) && {
            let wish = wish(self.seen.volume, "");
            let staying = self.census.usable().filter(|own| !own.leaving).count();
            staying >= self.wanted
                || !matches!(
                    self.census.supply(self.wanted, &wish, self.seen.places, None, self.seen.now),
                    ReplicaAction::NoPlace(_)
                )
        };
        for (kind, needed) in [(EXPANSION, short), (EVICTION, leaving)] {
            let node = home.filter(|_| needed);
            if let Some(patch) = ticket::own(Some(attachment), volume, kind, node) {
                self.plan.actions.push(VolumeAction::Patch(ATTACHMENTS, volume.to_owned(), patch));
            }
        }
    }

    /// Whether the replicas' files have to grow.
    fn is_short(&self, engine: &EngineFields<'_>) -> bool {
        let size = bytes(self.volume.spec.size);
        let current = bytes(engine.status.current_size);
        let behind = self.census.core().any(|own| bytes(own.fields.spec.volume_size) < size);
        behind || current > 0 && current < size
    }

    fn again(&mut self, after: Duration) {
        self.plan.again = Some(self.plan.again.map_or(after, |own| own.min(after)));
    }
}

/// The engine of a node that is gone runs nowhere, and that of a lost one is fenced by the next; of
/// one that is silent it is unknown.
fn engine_state(engine: &EngineFields<'_>, places: &ReplicaPlacements) -> Instance {
    let reported = Instance::read(engine.status.current_state);
    match engine.spec.node_id {
        "" => reported,
        node => match places.life(node) {
            NodeHealth::Alive => reported,
            NodeHealth::Silent => Instance::Unknown,
            NodeHealth::Lost | NodeHealth::Gone => Instance::Stopped,
        },
    }
}

#[cfg(test)]
mod tests;
