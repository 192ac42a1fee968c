//! Longhorn's volumes: creates the engine and the replicas of each, attaches it by its tickets,
//! replaces failed replicas, and removes everything when the volume is deleted.
//!
//! Nothing here accesses data. Nodes carry out the specs of their engines and replicas, and report
//! their status; `volume/plan.rs` decides the next steps.

mod copy;
mod instance;
mod place;
mod plan;
mod removal;
mod replace;
mod replica;
mod state;
mod status;
pub(super) mod ticket;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock;
use client::CatalogKind;
use hci::longhorn::{NAMESPACE, VOLUME_LABEL};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tracing::info;

use self::copy::ResolvedSource;
use self::place::ReplicaPlacements;
use self::plan::{VolumeAction, VolumeInput};
use super::object::{engine_name, volume_of};
use super::{
    API, ATTACHMENTS, ENGINES, LONGHORN_VOLUMES, REPLICAS, SETTINGS, SNAPSHOTS, STORAGE_NODES,
};
use crate::event::{self, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, is_refused};

const SOURCE: &str = "longhorn-volume-controller";
/// The retry interval while another task reconciles the same volume.
const BUSY: Duration = Duration::from_millis(50);

/// Volumes, and the objects that report their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    /// Copies wait for snapshots and volumes of others.
    waiting: Dependents,
    memory: Arc<Mutex<VolumeMemory>>,
}

#[derive(Debug, Default)]
struct VolumeMemory {
    volumes: BTreeSet<Arc<str>>,
    /// Those that would take a place if there were one.
    homeless: BTreeSet<Arc<str>>,
    /// Those that are being reconciled.
    busy: BTreeSet<Arc<str>>,
    /// The last seen offer of each node.
    offers: BTreeMap<Arc<str>, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VolumeKey {
    Volume(Arc<str>),
    /// A node with disks: its offer may concern all volumes.
    Node(Arc<str>),
}

/// The exclusive right to reconcile a volume: two passes at once would create its parts twice.
struct VolumeLock<'a> {
    watched: &'a Watched,
    name: Arc<str>,
}

impl Drop for VolumeLock<'_> {
    fn drop(&mut self) {
        self.watched.lock().busy.remove(&self.name);
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, VolumeMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_placement(&self, name: &Arc<str>, wants: bool) {
        let mut memory = self.lock();
        if wants {
            memory.homeless.insert(Arc::clone(name));
        } else {
            memory.homeless.remove(name);
        }
    }

    fn others(&self, name: &str) -> Vec<Arc<str>> {
        let waiting = self.waiting.of(&ObjectKey::new(NAMESPACE, name));
        waiting.into_iter().map(|key| key.name).collect()
    }

    fn turn(&self, name: &Arc<str>) -> Option<VolumeLock<'_>> {
        let free = self.lock().busy.insert(Arc::clone(name));
        free.then(|| VolumeLock { watched: self, name: Arc::clone(name) })
    }

    /// The next check of this node concerns all volumes.
    fn forget_offer(&self, node: &Arc<str>) {
        self.lock().offers.remove(node);
    }

    /// The volumes that a node's offer concerns. Its free space changes often, and concerns those
    /// that need space; whether it takes replicas at all concerns all volumes.
    fn concerned(&self, node: &Arc<str>, offer: Option<String>) -> Vec<Arc<str>> {
        let mut memory = self.lock();
        let before = match &offer {
            Some(offer) => memory.offers.insert(Arc::clone(node), offer.clone()),
            None => memory.offers.remove(node),
        };
        let all = if before == offer { &memory.homeless } else { &memory.volumes };
        all.iter().cloned().collect()
    }
}

impl EventMapper for Watched {
    type Key = VolumeKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<VolumeKey> {
        let ObjectChange::Object { kind, name, state, .. } = touch else { return Vec::new() };
        if STORAGE_NODES.is(kind) {
            return vec![VolumeKey::Node(Arc::clone(name))];
        }
        self.volumes(kind, name, *state).into_iter().map(VolumeKey::Volume).collect()
    }
}

impl Watched {
    fn volumes(&self, kind: &CatalogKind, name: &Arc<str>, state: ObjectState) -> Vec<Arc<str>> {
        let own = |name: Option<&str>| name.map(Arc::from).into_iter().collect();
        if LONGHORN_VOLUMES.is(kind) {
            let mut keys = self.others(name);
            let mut memory = self.lock();
            if state == ObjectState::Gone {
                memory.volumes.remove(name);
                memory.homeless.remove(name);
            } else {
                memory.volumes.insert(Arc::clone(name));
                keys.push(Arc::clone(name));
            }
            keys
        } else if ATTACHMENTS.is(kind) {
            vec![Arc::clone(name)]
        } else if ENGINES.is(kind) {
            own(volume_of(name, "-e-"))
        } else if REPLICAS.is(kind) {
            own(volume_of(name, "-r-"))
        } else if SNAPSHOTS.is(kind) {
            self.others(name)
        } else if NODES.is(kind) {
            self.lock().volumes.iter().cloned().collect()
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VolumeReconciler {
    objects: Objects,
    watched: Watched,
}

impl Reconciler for VolumeReconciler {
    type Key = VolumeKey;

    async fn reconcile(&self, work: &VolumeKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            VolumeKey::Volume(name) => self.volume(name).await,
            VolumeKey::Node(name) => self.node(name).await,
        }
    }
}

impl VolumeReconciler {
    async fn node(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let node = self.objects.get(STORAGE_NODES, NAMESPACE, name).await.doing("get the node")?;
        let offer = node.as_ref().map(place::offer);
        let mut next = Ok(ReconcileResult::Done);
        for volume in self.watched.concerned(name, offer) {
            let result = self.volume(&volume).await;
            if matches!(result, Ok(result) if result != ReconcileResult::Again(BUSY)) {
                continue;
            }
            // The volume may have been judged by the node as it was.
            self.watched.forget_offer(name);
            // An error is retried with a back-off, not as often as a volume that is busy.
            next = next.and(result);
        }
        next
    }

    async fn volume(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let Some(_turn) = self.watched.turn(name) else { return Ok(ReconcileResult::Again(BUSY)) };
        let Some(found) = self.find(name).await? else {
            self.watched.waiting.forget(&ObjectKey::new(NAMESPACE, name));
            return Ok(ReconcileResult::Done);
        };
        let mut places = self.places(&found.volume).await?;
        let now = clock::now();
        if found.seen(&places, now).needs_places() {
            let all = self.objects.list(REPLICAS, NAMESPACE, "").await;
            places.count(&all.doing("list replicas")?);
        }
        let plan = plan::plan(&found.seen(&places, now));
        self.watched.find_placement(name, plan.wants_room);
        for action in &plan.actions {
            self.carry_out(&found.volume, action).await?;
        }
        Ok(plan.again.map_or(ReconcileResult::Done, ReconcileResult::Again))
    }
}

/// All objects that a volume consists of.
struct VolumeObjects {
    volume: Value,
    engine: Option<Value>,
    replicas: Vec<Value>,
    attachment: Option<Value>,
    snapshots: Vec<Value>,
    original: ResolvedSource,
}

impl VolumeObjects {
    fn seen<'a>(&'a self, places: &'a ReplicaPlacements, now: Timestamp) -> VolumeInput<'a> {
        VolumeInput {
            volume: &self.volume,
            engine: self.engine.as_ref(),
            replicas: &self.replicas,
            attachment: self.attachment.as_ref(),
            snapshots: &self.snapshots,
            original: &self.original,
            places,
            now,
        }
    }
}

impl VolumeReconciler {
    pub(crate) fn new(client: Client, watched: Watched) -> Self {
        Self { objects: Objects(client), watched }
    }

    async fn find(&self, name: &str) -> Result<Option<VolumeObjects>, ReconcileError> {
        let found = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, name).await;
        let Some(volume) = found.doing("get the volume")? else { return Ok(None) };
        let engine = self.objects.get(ENGINES, NAMESPACE, &engine_name(name)).await;
        let engine = engine.doing("get the engine")?;
        let replicas = self.of(REPLICAS, name).await.doing("list the replicas of a volume")?;
        let attachment = self.objects.get(ATTACHMENTS, NAMESPACE, name).await;
        let attachment = attachment.doing("get the attachment")?;
        let snapshots = match object::is_deleting(&volume) {
            true => self.of(SNAPSHOTS, name).await.doing("list the snapshots of a volume")?,
            false => Vec::new(),
        };
        let original = self.original(&volume).await?;
        Ok(Some(VolumeObjects { volume, engine, replicas, attachment, snapshots, original }))
    }

    async fn of(&self, resource: Resource, volume: &str) -> Result<Vec<Value>, kube::Error> {
        self.objects.list(resource, NAMESPACE, &format!("{VOLUME_LABEL}={volume}")).await
    }

    /// The source of a copy. The volume is registered as waiting for it before it is read.
    async fn original(&self, volume: &Value) -> Result<ResolvedSource, ReconcileError> {
        let key = ObjectKey::of(volume);
        let Some(source) = copy::source(volume) else {
            self.watched.waiting.forget(&key);
            return Ok(ResolvedSource::default());
        };
        let needs = [&source.volume, &source.snapshot].map(|name| ObjectKey::new(NAMESPACE, name));
        self.watched.waiting.set(&key, needs.into());
        let from = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, &source.volume).await;
        let snapshot = self.objects.get(SNAPSHOTS, NAMESPACE, &source.snapshot).await;
        let replicas = self.of(REPLICAS, &source.volume).await;
        Ok(ResolvedSource {
            volume: from.doing("get the source volume")?,
            snapshot: snapshot.doing("get the source snapshot")?,
            replicas: replicas.doing("list the replicas of the source")?,
        })
    }

    async fn places(&self, volume: &Value) -> Result<ReplicaPlacements, ReconcileError> {
        let storage = self.objects.list(STORAGE_NODES, NAMESPACE, "").await;
        let nodes = self.objects.list(NODES, "", "").await;
        let settings = self.objects.list(SETTINGS, NAMESPACE, "").await;
        Ok(ReplicaPlacements::new(
            &storage.doing("list nodes with disks")?,
            &nodes.doing("list nodes")?,
            &settings.doing("list settings")?,
            volume,
        ))
    }

    async fn carry_out(&self, volume: &Value, action: &VolumeAction) -> Result<(), ReconcileError> {
        let objects = &self.objects;
        match action {
            VolumeAction::Create(resource, object) => {
                match objects.create(*resource, NAMESPACE, object).await {
                    // Made a moment ago; the touch of it brings us back.
                    Err(failure) if is_refused(&failure, 409) => Ok(()),
                    made => made.map(drop).doing("create a part of a volume"),
                }
            }
            VolumeAction::Patch(resource, name, patch) => {
                match objects.merge(*resource, NAMESPACE, name, patch).await {
                    Err(failure) if is_refused(&failure, 404) => Ok(()),
                    written => written.map(drop).doing("change a part of a volume"),
                }
            }
            VolumeAction::PatchStatus(resource, name, patch) => {
                match objects.merge_status(*resource, NAMESPACE, name, patch).await {
                    Err(failure) if is_refused(&failure, 404) => Ok(()),
                    written => written.map(drop).doing("say how a volume is"),
                }
            }
            VolumeAction::Delete(resource, object) => {
                let (name, uid) = (object::name(object), object::uid(object));
                let deleted = objects.delete(*resource, NAMESPACE, name, uid).await;
                deleted.doing("delete a part of a volume")
            }
            VolumeAction::Event(tone, reason, message) => {
                let regarding = Regarding {
                    api_version: API,
                    kind: "Volume",
                    namespace: NAMESPACE,
                    name: object::name(volume),
                    uid: object::uid(volume),
                };
                info!(volume = object::name(volume), reason, "volume changes");
                event::record(&objects.0, SOURCE, &regarding, *tone, reason, message.clone()).await;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
