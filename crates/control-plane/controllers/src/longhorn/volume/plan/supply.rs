//! Copies of a volume that have to be made, and those that are too many.

use std::time::Duration;

use hci::longhorn::REPLACES;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Draft, VolumeAction, VolumeInput};
use crate::event::EventType;
use crate::longhorn::record::EngineFields;
use crate::longhorn::volume::copy::{self, CopyStep};
use crate::longhorn::volume::place::NodeHealth;
use crate::longhorn::volume::replica::{ReplicaAction, Retention, wish};
use crate::longhorn::volume::state::VolumeState;
use crate::longhorn::volume::status::READABLE;
use crate::longhorn::volume::ticket::time;
use crate::longhorn::volume::{instance, removal};
use crate::longhorn::{LONGHORN_VOLUMES, REPLICAS, SNAPSHOTS};
use crate::object::{is_deleting, name};
use crate::record::condition::of_type;

impl Draft<'_> {
    /// Copies that are missing, and those that are too many.
    pub(super) fn supply(&mut self, engine: Option<&EngineFields<'_>>) {
        if let Some(source) = copy::source(self.seen.volume) {
            self.copy(&source);
        } else if !copy::is_done(self.seen.volume) {
            self.fail_copy();
        } else if self.census.is_fresh() {
            let begun = engine.is_some_and(|own| own.spec.desire_state == "running");
            if !begun {
                self.first();
            }
        } else if self.state == VolumeState::Attached
            && engine.is_some_and(|own| own.status.current_state == "running")
        {
            self.replenish();
        }
        let minutes = self.volume.spec.stale_replica_timeout.unwrap_or(2880);
        let stale = SignedDuration::from_mins(minutes);
        let spent = self.census.surplus(Retention {
            asked: self.seen.asked(),
            wanted: self.wanted,
            stale,
            unreadable: self.engine_fault(READABLE).is_some(),
            now: self.seen.now,
        });
        let doomed: Vec<Value> = spent.into_iter().map(|own| own.object.clone()).collect();
        self.plan.actions.extend(doomed.into_iter().map(|own| VolumeAction::Delete(REPLICAS, own)));
        let orphans =
            self.census.0.iter().filter(|own| own.deleting && own.life == NodeHealth::Gone);
        let orphans: Vec<VolumeAction> =
            orphans.map(|own| removal::release(REPLICAS, own.object)).collect();
        self.plan.actions.extend(orphans);
        if self.census.0.iter().any(|own| own.failed.is_some()) {
            self.again(Duration::from_secs(30));
        }
    }

    fn first(&mut self) {
        let wish = wish(self.seen.volume, self.node.unwrap_or_default());
        let (places, obstacle) = self.census.first(self.wanted, &wish, self.seen.places);
        for (index, place) in places.iter().enumerate() {
            let made = instance::replica(self.seen.volume, place, None, index, self.seen.now);
            self.plan.actions.push(VolumeAction::Create(REPLICAS, made));
        }
        // Fewer copies than there could be are a start, as the cluster's setting allows.
        self.obstacle = obstacle.map(|obstacle| self.seen.places.explain(obstacle, &wish));
        self.plan.wants_room = obstacle.is_some();
    }

    fn replenish(&mut self) {
        let wish = wish(self.seen.volume, self.node.unwrap_or_default());
        let since = time(self.volume.status.last_degraded_at);
        let (places, now) = (self.seen.places, self.seen.now);
        match self.census.supply(self.wanted, &wish, places, since, now) {
            ReplicaAction::Enough => {}
            ReplicaAction::Make(copy) => {
                let mut made = instance::replica(self.seen.volume, &copy.place, None, 0, now);
                made["spec"]["rebuildRetryCount"] = json!(copy.tries);
                if let Some(old) = copy.replaces {
                    made["metadata"]["annotations"] = json!({REPLACES: old});
                    let new = name(&made).to_owned();
                    self.report_replacement(old, &new, &copy.place.node);
                }
                self.plan.actions.push(VolumeAction::Create(REPLICAS, made));
            }
            ReplicaAction::Reuse(own) => {
                let found = self.census.0.iter().find(|replica| replica.name == own);
                let tries = found.map_or(0, |own| own.tries);
                let spec = json!({"failedAt": "", "healthyAt": "", "rebuildRetryCount": tries + 1});
                let patch = VolumeAction::Patch(REPLICAS, own.to_owned(), json!({"spec": spec}));
                self.plan.actions.push(patch);
            }
            ReplicaAction::Wait(until) => {
                let left = until.duration_since(now);
                self.again(left.unsigned_abs().max(Duration::from_secs(1)));
            }
            ReplicaAction::NoPlace(obstacle) => {
                self.obstacle = Some(places.explain(obstacle, &wish));
                self.plan.wants_room = true;
            }
        }
    }

    fn report_replacement(&mut self, old: &str, new: &str, node: &str) {
        let Some(own) = self.census.0.iter().find(|own| own.name == old) else { return };
        let found = of_type(&own.fields.status.conditions, "InstanceCreation");
        let why = found.map_or("its files cannot be opened", |it| it.message);
        let message = format!(
            "replica {old} on node {} is unusable: {why}; replica {new} on node {node} replaces it \
             and gets a full copy; its files are kept until every copy is in sync",
            own.node
        );
        self.push_event(EventType::Warning, "ReplicaReplaced", message);
    }

    /// There is nothing to copy from, and no empty volume may pass for the copy.
    fn fail_copy(&mut self) {
        if self.volume.status.clone_status.state != "failed" {
            self.clone_status = Some(json!({"state": "failed"}));
            let message = format!(
                "spec.dataSource \"{}\" is invalid: it must be snap://VOLUME/SNAPSHOT or vol://VOLUME",
                self.volume.spec.data_source
            );
            self.push_event(EventType::Warning, "VolumeCloneFailed", message);
        }
    }

    fn copy(&mut self, source: &copy::CopySource) {
        let VolumeInput { volume, original, places, now, .. } = *self.seen;
        let step = copy::step(volume, source, original, &self.census, places, self.wanted);
        match step {
            CopyStep::Wait => {}
            CopyStep::TakeSnapshot(made) => {
                self.plan.actions.push(VolumeAction::Create(SNAPSHOTS, made))
            }
            CopyStep::Make(made) => {
                // The nodes that create the files read the snapshot there.
                let patch = json!({"status": {"cloneStatus": copy::status(source, "initiated")}});
                let name = name(volume).to_owned();
                self.plan.actions.push(VolumeAction::PatchStatus(LONGHORN_VOLUMES, name, patch));
                self.clone_status = Some(copy::status(source, "initiated"));
                for (index, (place, from)) in made.iter().enumerate() {
                    let made = instance::replica(volume, place, Some(from), index, now);
                    self.plan.actions.push(VolumeAction::Create(REPLICAS, made));
                }
            }
            CopyStep::Complete => {
                self.clone_status = Some(copy::status(source, "completed"));
                if source.own
                    && let Some(snapshot) = &original.snapshot
                    && !is_deleting(snapshot)
                {
                    self.plan.actions.push(VolumeAction::Delete(SNAPSHOTS, snapshot.clone()));
                }
                let message = format!("finished cloning volume {}", source.volume);
                self.push_event(EventType::Normal, "VolumeCloneCompleted", message);
            }
            CopyStep::Fail(why) => {
                self.clone_status = Some(copy::status(source, "failed"));
                let message = format!("cannot clone volume {}: {why}", source.volume);
                self.push_event(EventType::Warning, "VolumeCloneFailed", message);
            }
        }
    }
}
