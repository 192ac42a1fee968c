//! Claims of the driver's classes get volumes: Longhorn's, and the persistent volume by which
//! they are bound. Also what becomes of both when the claim grows or goes.
//!
//! Binding is the business of `claim`; engines and replicas are that of `volume`.

mod growth;
mod image;
mod origin;
mod parameter;
mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Chain, clock};
use hci::longhorn::NAMESPACE;
use kube::Client;
use serde_json::{Value, json};

use self::origin::{Content, Origin};
use self::plan::{Fate, ProvisionError, ProvisionRequest};
use super::object::handle;
use super::record::VolumeFields;
use super::volume_snapshot::record::VolumeSnapshotFields;
use super::volume_snapshot::{CONTENTS, VOLUME_SNAPSHOTS};
use super::{BACKING_IMAGES, BACKUPS, LONGHORN_VOLUMES};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, annotation, is_merged, read};
use crate::populate;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::claim::{ClaimFields, PersistentVolumeFields};
use crate::record::metadata::OwnerFields;
use crate::resource::{CLAIMS, CLASSES, DATA_VOLUMES, Objects, VOLUMES, is_refused};

const SOURCE: &str = hci::DRIVER;
/// A refused request is tried again although no change was seen.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProvisionKey {
    Claim(ObjectKey),
    /// A persistent volume.
    Volume(Arc<str>),
    /// A volume of Longhorn's.
    Backing(Arc<str>),
}

/// Claims, both kinds of volumes, and the objects that claims were seen to wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed(pub(crate) Dependents);

impl EventMapper for Claimed {
    type Key = ProvisionKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ProvisionKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let waiting = || self.0.of(&key).into_iter().map(ProvisionKey::Claim);
        if CLAIMS.is(kind) {
            waiting().chain([ProvisionKey::Claim(key.clone())]).collect()
        } else if VOLUMES.is(kind) && *state != ObjectState::Gone {
            vec![ProvisionKey::Volume(Arc::clone(name))]
        } else if LONGHORN_VOLUMES.is(kind) {
            vec![ProvisionKey::Backing(Arc::clone(name))]
        } else if CLASSES.is(kind) || VOLUME_SNAPSHOTS.is(kind) || BACKING_IMAGES.is(kind) {
            waiting().collect()
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct Provisioner {
    objects: Objects,
    waiting: Dependents,
    /// The last event of each claim, so that it is recorded once.
    reported: Mutex<BTreeMap<ObjectKey, String>>,
}

impl Reconciler for Provisioner {
    type Key = ProvisionKey;

    async fn reconcile(&self, work: &ProvisionKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            ProvisionKey::Claim(key) => self.claim(key).await,
            ProvisionKey::Volume(name) => self.volume(name).await,
            ProvisionKey::Backing(name) => self.backing(name).await,
        }
    }
}

impl Provisioner {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting, reported: Mutex::default() }
    }

    async fn claim(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let Some(claim) = found.doing("get the claim")? else {
            self.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let spec = read::<ClaimFields<'_>>(&claim).spec;
        if !spec.volume_name.is_empty() {
            self.forget(key);
            return self.grow(&claim).await;
        }
        let class = spec.storage_class_name;
        self.waiting.set(key, [ObjectKey::new("", class)].into());
        let found = self.objects.get(CLASSES, "", class).await.doing("get the storage class")?;
        let Some(class) = found else { return Ok(ReconcileResult::Done) };
        if plan::want(&claim, &class) != ProvisionRequest::Volume {
            return Ok(ReconcileResult::Done);
        }
        match self.provision(&claim, &class).await? {
            Ok(next) => Ok(next),
            Err(complaint) => {
                let class = object::name(&class);
                let cause = Chain(&complaint).to_string();
                let message =
                    format!("failed to provision volume with StorageClass \"{class}\": {cause}");
                self.complain(key, &claim, message).await;
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
        }
    }

    /// The claim is checked again when the object changes, besides its class.
    fn wait_for(&self, claim: &Value, namespace: &str, name: &str) {
        let class = read::<ClaimFields<'_>>(claim).spec.storage_class_name;
        let class = ObjectKey::new("", class);
        self.waiting.set(&ObjectKey::of(claim), [class, ObjectKey::new(namespace, name)].into());
    }

    fn forget(&self, key: &ObjectKey) {
        self.waiting.forget(key);
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Longhorn's volume first: one that the API refuses must not be bound.
    async fn provision(
        &self,
        claim: &Value,
        class: &Value,
    ) -> Result<Result<ReconcileResult, ProvisionError>, ReconcileError> {
        let content = match self.content(claim).await? {
            Ok(content) => content,
            Err(complaint) => return Ok(Err(complaint)),
        };
        let is_backup = content.as_ref().is_some_and(|own| own.backup_url.is_some());
        if !is_backup && let Err(complaint) = self.check_image(claim, class).await? {
            return Ok(Err(complaint));
        }
        let wanted = match plan::backing(claim, class, content.as_ref()) {
            Ok(wanted) => wanted,
            Err(complaint) => return Ok(Err(complaint)),
        };
        let name = object::name(&wanted);
        let backing = match self.objects.create(LONGHORN_VOLUMES, NAMESPACE, &wanted).await {
            Ok(made) => made,
            Err(failure) if is_refused(&failure, 409) => {
                let found = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, name).await;
                let Some(found) = found.doing("get the volume")? else {
                    return Ok(Ok(ReconcileResult::Done));
                };
                found
            }
            Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                return Ok(Err(ProvisionError::Refused { why: refusal.message.clone() }));
            }
            Err(failure) => return Err(failure).doing("create the volume"),
        };
        if read::<VolumeFields<'_>>(&backing).status.clone_status.state == "failed" {
            return Ok(Err(ProvisionError::NotCopied { volume: name.to_owned() }));
        }
        if !plan::is_filled(&backing) {
            return Ok(Ok(ReconcileResult::Done));
        }
        let volume = plan::persistent(claim, class, &backing);
        match self.objects.create(VOLUMES, "", &volume).await {
            Err(failure) if is_refused(&failure, 409) => return Ok(Ok(ReconcileResult::Done)),
            made => drop(made.doing("create the persistent volume")?),
        }
        let message = format!("Successfully provisioned volume {name}");
        self.record_event(claim, EventType::Normal, "ProvisioningSucceeded", message).await;
        Ok(Ok(ReconcileResult::Done))
    }

    /// The image that the volumes of a class begin as has to exist.
    async fn check_image(
        &self,
        claim: &Value,
        class: &Value,
    ) -> Result<Result<(), ProvisionError>, ReconcileError> {
        let Some(name) = image::wanted(class) else { return Ok(Ok(())) };
        self.wait_for(claim, NAMESPACE, name);
        let found = self.objects.get(BACKING_IMAGES, NAMESPACE, name).await;
        let found = found.doing("get the backing image")?;
        Ok(image::check(claim, class, name, found.as_ref()))
    }

    async fn content(
        &self,
        claim: &Value,
    ) -> Result<Result<Option<Content>, ProvisionError>, ReconcileError> {
        let controller = match annotation(claim, populate::DRIVER_CLONE) {
            Some(_) => controller_name(claim),
            None => "",
        };
        let dv = self.objects.get(DATA_VOLUMES, object::namespace(claim), controller).await;
        let dv = dv.doing("get the data volume of a claim")?;
        Ok(match origin::origin(claim, dv.as_ref()) {
            Origin::Nothing => Ok(None),
            Origin::Other(what) => Err(ProvisionError::Origin { what }),
            Origin::Unauthorized(from) => Err(ProvisionError::Unauthorized { from }),
            Origin::Claim(ObjectKey { namespace, name }) => {
                self.wait_for(claim, &namespace, &name);
                let source = self.objects.get(CLAIMS, &namespace, &name).await;
                let source = source.doing("get the source claim")?;
                let volume = self.objects.volume_of(source.as_ref()).await;
                let volume = volume.doing("get the source volume")?;
                origin::claim_content(&name, source.as_ref(), volume.as_ref()).map(Some)
            }
            Origin::Snapshot(ObjectKey { namespace, name }) => {
                self.wait_for(claim, &namespace, &name);
                let snapshot = self.objects.get(VOLUME_SNAPSHOTS, &namespace, &name).await;
                let snapshot = snapshot.doing("get the source snapshot")?;
                let bound = snapshot
                    .as_ref()
                    .map_or("", |own| read::<VolumeSnapshotFields<'_>>(own).status.content_name);
                let content = self.objects.get(CONTENTS, "", bound).await;
                let content = content.doing("get the content of a snapshot")?;
                let backup = origin::backup_of(content.as_ref()).unwrap_or_default();
                let backup = self.objects.get(BACKUPS, NAMESPACE, backup).await;
                let backup = backup.doing("get the backup")?;
                let (snapshot, content) = (snapshot.as_ref(), content.as_ref());
                origin::snapshot_content(&name, snapshot, content, backup.as_ref()).map(Some)
            }
        })
    }

    /// A persistent volume changed: its claim, or whether it has one.
    async fn volume(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VOLUMES, "", name).await.doing("get the volume")?;
        let Some(volume) = found else { return Ok(ReconcileResult::Done) };
        let Some(own) = handle(&volume) else { return Ok(ReconcileResult::Done) };
        let backing = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, own).await;
        let backing = backing.doing("get the volume behind a claim")?;
        if let Some(backing) = &backing {
            self.update_kubernetes_status(&volume, backing).await?;
        }
        if annotation(&volume, plan::PROVISIONED_BY) != Some(hci::DRIVER) {
            return Ok(ReconcileResult::Done);
        }
        self.carry_out(&volume, backing.as_ref()).await
    }

    async fn carry_out(
        &self,
        volume: &Value,
        backing: Option<&Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let (name, uid) = (object::name(volume), object::uid(volume));
        match (plan::fate(volume, backing), backing) {
            (Fate::DeleteBacking, Some(backing)) => {
                let (own, uid) = (object::name(backing), object::uid(backing));
                let deleted = self.objects.delete(LONGHORN_VOLUMES, NAMESPACE, own, uid).await;
                deleted.doing("delete the volume behind a claim")?;
            }
            (Fate::Delete, _) => {
                let deleted = self.objects.delete(VOLUMES, "", name, uid).await;
                deleted.doing("delete the persistent volume")?;
            }
            (Fate::Release, _) if object::has_finalizer(volume, plan::HELD) => {
                let mut meta = object::version(volume);
                let left = object::finalizers_without(volume, &[plan::HELD]);
                meta.insert("finalizers".into(), left.into());
                let patch = json!({"metadata": meta});
                match self.objects.merge(VOLUMES, "", name, &patch).await {
                    Err(failure) if is_refused(&failure, 404) => {}
                    written => drop(written.doing("release the persistent volume")?),
                }
            }
            _ => {}
        }
        Ok(ReconcileResult::Done)
    }

    async fn update_kubernetes_status(
        &self,
        volume: &Value,
        backing: &Value,
    ) -> Result<(), ReconcileError> {
        let to = read::<PersistentVolumeFields<'_>>(volume).spec.claim_ref;
        let claim = self.objects.get(CLAIMS, to.namespace, to.name).await.doing("get the claim")?;
        let claim = claim.filter(|own| object::uid(own) == to.uid);
        let mut patch = plan::kubernetes_status(volume, claim.as_ref());
        if is_merged(backing, &patch) {
            return Ok(());
        }
        let before = read::<VolumeFields<'_>>(backing).status.kubernetes_status;
        if claim.is_none() && before.last_pvc_ref_at.is_empty() {
            patch["status"]["kubernetesStatus"]["lastPVCRefAt"] = clock::now_rfc3339().into();
        }
        let name = object::name(backing);
        match self.objects.merge_status(LONGHORN_VOLUMES, NAMESPACE, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("say who uses a volume"),
        }
    }

    /// A volume of Longhorn's changed: its claim may have waited for that.
    async fn backing(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, name).await;
        let backing = found.doing("get the volume behind a claim")?;
        let status = backing.as_ref().map(|own| read::<VolumeFields<'_>>(own).status);
        let pv_name = status.map_or("", |own| own.kubernetes_status.pv_name);
        let called = if pv_name.is_empty() { name } else { pv_name };
        let volume = self.objects.get(VOLUMES, "", called).await.doing("get the volume")?;
        let Some(volume) = volume else {
            return match backing {
                Some(backing) => self.unclaimed(&backing).await,
                None => Ok(ReconcileResult::Done),
            };
        };
        if handle(&volume) == Some(name) {
            let to = read::<PersistentVolumeFields<'_>>(&volume).spec.claim_ref;
            let claim = self.objects.get(CLAIMS, to.namespace, to.name).await;
            let claim = claim.doing("get the claim")?;
            let is_bound = |own: &Value| read::<ClaimFields<'_>>(own).spec.volume_name == called;
            if let Some(claim) = claim.filter(is_bound) {
                self.grow(&claim).await?;
            }
        }
        self.volume(called).await
    }

    /// There is no persistent volume yet, or the claim went before there was one.
    async fn unclaimed(&self, backing: &Value) -> Result<ReconcileResult, ReconcileError> {
        let Some(made_for) = annotation(backing, plan::MADE_FOR) else {
            return Ok(ReconcileResult::Done);
        };
        let mut parts = made_for.splitn(3, '/');
        let (namespace, name) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let claim = self.objects.get(CLAIMS, namespace, name).await.doing("get the claim")?;
        match claim {
            Some(claim) if plan::made_for(&claim) == made_for && !object::is_deleting(&claim) => {
                // Filled by now, perhaps.
                self.claim(&ObjectKey::new(namespace, name)).await
            }
            _ if object::is_deleting(backing) => Ok(ReconcileResult::Done),
            _ => {
                let (own, uid) = (object::name(backing), object::uid(backing));
                let deleted = self.objects.delete(LONGHORN_VOLUMES, NAMESPACE, own, uid).await;
                deleted.map(|()| ReconcileResult::Done).doing("delete an unclaimed volume")
            }
        }
    }

    async fn complain(&self, key: &ObjectKey, claim: &Value, message: String) {
        let before = self
            .reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), message.clone());
        if before.as_ref() != Some(&message) {
            self.record_event(claim, EventType::Warning, "ProvisioningFailed", message).await;
        }
    }

    async fn record_event(&self, claim: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "v1",
            kind: "PersistentVolumeClaim",
            namespace: object::namespace(claim),
            name: object::name(claim),
            uid: object::uid(claim),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

/// The name of the object that controls a claim; empty if none does.
fn controller_name(claim: &Value) -> &str {
    object::controller(claim).map_or("", |owner| read::<OwnerFields<'_>>(owner).name)
}

#[cfg(test)]
mod tests;
