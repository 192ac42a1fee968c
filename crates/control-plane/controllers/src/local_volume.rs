//! Volumes of the class `local` that migrate with their machine: only here is the node changed that
//! such a volume is on.
//!
//! The node of an instance names the volumes that it copies, and hands the instance over; no node
//! may write the volumes' objects for that. Refuses to move a volume that the instance does not use.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use hci::local_volume::LocalVolumeMove;
use kube::Client;
use serde_json::Value;
use tracing::info;

use self::plan::{InstanceEvidence, VolumeMoveStep, VolumePlacement};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::read;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::claim::{ClaimReference, PersistentVolumeFields};
use crate::record::vm_volume::has_disk_on;
use crate::resource::{CLAIMS, Objects, VMIS, VOLUMES};

const SOURCE: &str = "local-volume-controller";

/// The object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalVolumeKey {
    /// An instance, whose volumes may begin to move.
    Instance(ObjectKey),
    /// A volume, which may be moving.
    Volume(Arc<str>),
}

/// Volumes that move, and the instances that decide where to.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalVolumeMapper(pub(crate) Dependents);

fn volume_key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

impl EventMapper for LocalVolumeMapper {
    type Key = LocalVolumeKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<LocalVolumeKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            let moving = self.0.all().into_iter();
            return moving.map(|key| LocalVolumeKey::Volume(key.name)).collect();
        };
        if VOLUMES.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&volume_key(name));
                return Vec::new();
            }
            return vec![LocalVolumeKey::Volume(Arc::clone(name))];
        }
        if VMIS.is(kind) {
            let key = ObjectKey::new(namespace, name);
            let moving = self.0.of(&key).into_iter().map(|it| LocalVolumeKey::Volume(it.name));
            return moving.chain([LocalVolumeKey::Instance(key)]).collect();
        }
        Vec::new()
    }
}

pub(crate) struct LocalVolumeReconciler {
    objects: Objects,
    moving: Dependents,
}

impl Reconciler for LocalVolumeReconciler {
    type Key = LocalVolumeKey;

    async fn reconcile(&self, key: &LocalVolumeKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            LocalVolumeKey::Instance(key) => self.begin(key).await?,
            LocalVolumeKey::Volume(name) => self.settle(name).await?,
        }
        Ok(ReconcileResult::Done)
    }
}

impl LocalVolumeReconciler {
    pub(crate) fn new(client: Client, moving: Dependents) -> Self {
        Self { objects: Objects(client), moving }
    }

    /// Lets the target of a migration make copies of the volumes that the source names.
    async fn begin(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let found = self.objects.get(VMIS, &key.namespace, &key.name).await;
        let Some(instance) = found.doing("get the instance")? else { return Ok(()) };
        let evidence = InstanceEvidence::of(&instance);
        for name in &evidence.copied.volumes {
            let found = self.objects.get(VOLUMES, "", name).await;
            let Some(volume) = found.doing("get the volume")? else { continue };
            let Some(placement) = VolumePlacement::of(&volume) else { continue };
            let step = plan::next(name, &placement, Some(&evidence));
            if matches!(step, VolumeMoveStep::Begin(_)) && self.is_used(&instance, &volume).await? {
                self.write(&volume, &step).await?;
            }
        }
        Ok(())
    }

    /// Whether the instance has a disk on the claim that a volume is bound to.
    async fn is_used(&self, instance: &Value, volume: &Value) -> Result<bool, ReconcileError> {
        let ClaimReference { namespace, name, .. } = claim_of(volume);
        if namespace != crate::object::namespace(instance) || !has_disk_on(instance, name) {
            return Ok(false);
        }
        let claim = self.objects.get(CLAIMS, namespace, name).await.doing("get the claim")?;
        Ok(claim.is_some_and(|claim| virt::claim_binding::are_bound(&claim, volume)))
    }

    /// Decides on which node a volume is that moves.
    async fn settle(&self, name: &str) -> Result<(), ReconcileError> {
        let found = self.objects.get(VOLUMES, "", name).await.doing("get the volume")?;
        let placement = found.as_ref().and_then(VolumePlacement::of);
        let (Some(volume), Some(VolumePlacement::Moving(moves))) = (&found, &placement) else {
            self.moving.forget(&volume_key(name));
            return Ok(());
        };
        let key = ObjectKey::new(&moves.namespace, &moves.instance);
        self.moving.set(&volume_key(name), BTreeSet::from([key]));
        let instance = self.objects.get(VMIS, &moves.namespace, &moves.instance).await;
        let instance = instance.doing("get the instance")?;
        let evidence = instance.as_ref().map(InstanceEvidence::of);
        let placement = VolumePlacement::Moving(moves.clone());
        let step = plan::next(name, &placement, evidence.as_ref());
        self.write(volume, &step).await?;
        match &step {
            VolumeMoveStep::Commit(moves) => self.report(volume, moves).await,
            VolumeMoveStep::Abort => info!(volume = name, ?moves, "volume stays on its node"),
            VolumeMoveStep::Wait | VolumeMoveStep::Begin(_) => {}
        }
        Ok(())
    }

    async fn write(&self, volume: &Value, step: &VolumeMoveStep) -> Result<(), ReconcileError> {
        let Some(patch) = plan::patch(volume, step) else { return Ok(()) };
        let name = crate::object::name(volume);
        let written = self.objects.merge(VOLUMES, "", name, &patch).await;
        written.map(drop).doing("write where the volume is")
    }

    async fn report(&self, volume: &Value, moves: &LocalVolumeMove) {
        let LocalVolumeMove { source, target, .. } = moves;
        let name = crate::object::name(volume);
        info!(volume = name, source, target, "volume moved to another node");
        let ClaimReference { namespace, name: claim, uid } = claim_of(volume);
        let regarding = Regarding {
            api_version: "v1",
            kind: "PersistentVolumeClaim",
            namespace,
            name: claim,
            uid,
        };
        let message = format!("Volume {name} moved from node {source} to node {target}");
        let client = &self.objects.0;
        event::record(client, SOURCE, &regarding, EventType::Normal, "VolumeMoved", message).await;
    }
}

fn claim_of(volume: &Value) -> ClaimReference<'_> {
    read::<PersistentVolumeFields<'_>>(volume).spec.claim_ref
}

#[cfg(test)]
mod tests;
