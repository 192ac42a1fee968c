//! Snapshots of claims, as clients of any storage driver ask for them: each gets its content,
//! and that a snapshot of Longhorn's.
//!
//! Only snapshots of this driver's volumes are handled.

mod plan;
pub(crate) mod record;

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use hci::longhorn::NAMESPACE;
use hci::together::TOGETHER;
use kube::Client;
use serde_json::{Value, json};

use self::plan::SnapshotError;
pub(crate) use self::plan::longhorn_name;
use self::record::{VolumeSnapshotContentFields, VolumeSnapshotFields};
use super::{BACKUPS, SNAPSHOTS, snapshot};
use crate::event::{self, EventType, Regarding};
use crate::key::ObjectKey;
use crate::object::{self, has_finalizer, is_deleting, is_merged, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{CLAIMS, Objects, Resource, is_refused};

pub(crate) const VOLUME_SNAPSHOTS: Resource =
    Resource::new(hci::snapshot::GROUP, "v1", "volumesnapshots");
pub(crate) const CONTENTS: Resource =
    Resource::new(hci::snapshot::GROUP, "v1", "volumesnapshotcontents");
pub(crate) const SNAPSHOT_CLASSES: Resource =
    Resource::new(hci::snapshot::GROUP, "v1", "volumesnapshotclasses");
const SOURCE: &str = "snapshot-controller";
/// Something that is named may still come.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VolumeSnapshotKey {
    Snapshot(ObjectKey),
    Content(Arc<str>),
}

#[derive(Debug, Default)]
pub(crate) struct VolumeSnapshotMapper;

impl EventMapper for VolumeSnapshotMapper {
    type Key = VolumeSnapshotKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<VolumeSnapshotKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        if VOLUME_SNAPSHOTS.is(kind) && *state != ObjectState::Gone {
            vec![VolumeSnapshotKey::Snapshot(ObjectKey {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            })]
        } else if CONTENTS.is(kind) && *state != ObjectState::Gone {
            vec![VolumeSnapshotKey::Content(Arc::clone(name))]
        } else if SNAPSHOTS.is(kind) {
            plan::content_of(name)
                .map(|own| VolumeSnapshotKey::Content(own.into()))
                .into_iter()
                .collect()
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VolumeSnapshotReconciler(Objects);

impl Reconciler for VolumeSnapshotReconciler {
    type Key = VolumeSnapshotKey;

    async fn reconcile(&self, work: &VolumeSnapshotKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            VolumeSnapshotKey::Snapshot(key) => self.snapshot(key).await,
            VolumeSnapshotKey::Content(name) => self.content(name).await,
        }
    }
}

impl VolumeSnapshotReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn snapshot(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(VOLUME_SNAPSHOTS, &key.namespace, &key.name).await;
        let Some(snapshot) = found.doing("get the snapshot")? else {
            return Ok(ReconcileResult::Done);
        };
        let content = self.0.get(CONTENTS, "", &plan::content_name(&snapshot)).await;
        let content = content.doing("get the content of a snapshot")?;
        if is_deleting(&snapshot) {
            return self.remove(&snapshot, content).await;
        }
        let content = match content {
            Some(content) => content,
            None => match self.make_content(&snapshot).await? {
                Ok(Some(content)) => content,
                Ok(None) => return Ok(ReconcileResult::Done),
                Err(complaint) => return self.complain(&snapshot, &complaint).await,
            },
        };
        if let Some(mut patch) = plan::binding(&snapshot, &content) {
            patch["metadata"] = object::version(&content).into();
            let written = self.0.merge(CONTENTS, "", object::name(&content), &patch).await;
            written.doing("bind the content to its snapshot")?;
        }
        let to = plan::bound_to(&content);
        if to.name != &*key.name || to.namespace != &*key.namespace {
            let name = object::name(&content).to_owned();
            return self.complain(&snapshot, &SnapshotError::Misbound { content: name }).await;
        }
        let patch = plan::status(&snapshot, &content);
        self.write_status(VOLUME_SNAPSHOTS, &snapshot, &patch).await
    }

    /// The content that a snapshot asks for; nothing if the snapshot is not for this driver.
    async fn make_content(
        &self,
        snapshot: &Value,
    ) -> Result<Result<Option<Value>, SnapshotError>, ReconcileError> {
        let source = read::<VolumeSnapshotFields<'_>>(snapshot).spec.source;
        if !source.content_name.is_empty() {
            let content = source.content_name.to_owned();
            return Ok(Err(SnapshotError::NoContent { content }));
        }
        let namespace = object::namespace(snapshot);
        let found =
            self.0.get(CLAIMS, namespace, source.claim_name).await.doing("get the claim")?;
        let volume = self.0.volume_of(found.as_ref()).await.doing("get the volume")?;
        let classes = self.0.list(SNAPSHOT_CLASSES, "", "").await;
        let classes = classes.doing("list snapshot classes")?;
        let wanted = match plan::content(snapshot, found.as_ref(), volume.as_ref(), &classes) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return Ok(Ok(None)),
            Err(complaint) => return Ok(Err(complaint)),
        };
        if !has_finalizer(snapshot, plan::BOUND) {
            let mut meta = object::version(snapshot);
            let mut all = object::finalizers_without(snapshot, &[]);
            all.push(json!(plan::BOUND));
            meta.insert("finalizers".into(), all.into());
            let patch = json!({"metadata": meta});
            let name = object::name(snapshot);
            let written = self.0.merge(VOLUME_SNAPSHOTS, namespace, name, &patch).await;
            written.doing("hold the snapshot")?;
        }
        match self.0.create(CONTENTS, "", &wanted).await {
            Err(failure) if is_refused(&failure, 409) => Ok(Ok(None)),
            made => Ok(Ok(Some(made.doing("create the content of a snapshot")?))),
        }
    }

    /// The content goes first, unless it is to stay.
    async fn remove(
        &self,
        snapshot: &Value,
        content: Option<Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (object::namespace(snapshot), object::name(snapshot));
        let claims = self.0.list(CLAIMS, namespace, "").await.doing("list claims")?;
        if plan::is_source(snapshot, &claims) {
            return Ok(ReconcileResult::Again(Duration::from_secs(1)));
        }
        let own = content.filter(|own| plan::belongs(own, snapshot));
        if let Some(content) = own.filter(is_dropped) {
            if !is_deleting(&content) {
                let (name, uid) = (object::name(&content), object::uid(&content));
                let deleted = self.0.delete(CONTENTS, "", name, uid).await;
                deleted.doing("delete the content of a snapshot")?;
            }
            return Ok(ReconcileResult::Done);
        }
        self.release(VOLUME_SNAPSHOTS, namespace, name, snapshot, plan::BOUND).await
    }

    async fn release(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        own: &Value,
        finalizer: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        if !has_finalizer(own, finalizer) {
            return Ok(ReconcileResult::Done);
        }
        let mut meta = object::version(own);
        meta.insert("finalizers".into(), object::finalizers_without(own, &[finalizer]).into());
        match self.0.merge(resource, namespace, name, &json!({"metadata": meta})).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("release a snapshot"),
        }
    }

    async fn content(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(CONTENTS, "", name).await.doing("get the content")?;
        let Some(content) = found else {
            // Objects that waited for its deletion get an event of their own.
            return Ok(ReconcileResult::Done);
        };
        if read::<VolumeSnapshotContentFields<'_>>(&content).spec.driver != hci::DRIVER {
            return Ok(ReconcileResult::Done);
        }
        if let Some(backup) = plan::backup_of(&content) {
            return self.backup_content(&content, backup).await;
        }
        let own = plan::own_name(&content);
        let taken = self.0.get(SNAPSHOTS, NAMESPACE, &own).await.doing("get the snapshot")?;
        if is_deleting(&content) {
            return self.remove_content(&content, taken).await;
        }
        let next = self.fill(&content, &own, taken).await?;
        self.snapshot(&bound_key(&content)).await?;
        Ok(next)
    }

    /// A content that was prepared for a backup is as ready as that. It never takes the backup
    /// along when it goes.
    async fn backup_content(
        &self,
        content: &Value,
        backup: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_deleting(content) {
            let name = object::name(content);
            return self.release(CONTENTS, "", name, content, plan::CONTENT_BOUND).await;
        }
        let found = self.0.get(BACKUPS, NAMESPACE, backup).await.doing("get the backup")?;
        let patch = plan::backup_status(content, backup, found.as_ref(), clock::now());
        self.write_status(CONTENTS, content, &patch).await?;
        self.snapshot(&bound_key(content)).await
    }

    /// Has the snapshot taken, and repeats what is said of it.
    async fn fill(
        &self,
        content: &Value,
        own: &str,
        taken: Option<Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let VolumeSnapshotContentFields { spec, status } = read(content);
        let volume = spec.source.volume_handle;
        let begun = !status.snapshot_handle.is_empty();
        let taken = match taken {
            None if !volume.is_empty() && !begun => {
                let class = self.0.get(SNAPSHOT_CLASSES, "", spec.class_name).await;
                let class = class.doing("get the snapshot class")?;
                if let Err(complaint) = plan::check_class(class.as_ref()) {
                    let patch = plan::content_fault(&complaint, clock::now());
                    return self.write_status(CONTENTS, content, &patch).await;
                }
                let mut wanted = snapshot::wanted(own, volume, &json!({"type": "snap"}));
                if let Some(together) = object::annotation(content, TOGETHER) {
                    wanted["metadata"]["annotations"][TOGETHER] = together.into();
                }
                match self.0.create(SNAPSHOTS, NAMESPACE, &wanted).await {
                    Err(failure) if is_refused(&failure, 409) => return Ok(ReconcileResult::Done),
                    made => Some(made.doing("ask for a snapshot")?),
                }
            }
            taken => taken,
        };
        let patch = plan::content_status(content, own, taken.as_ref(), clock::now());
        self.write_status(CONTENTS, content, &patch).await?;
        let waits = taken.is_some_and(|own| plan::content_of(object::name(&own)).is_none());
        Ok(if waits { ReconcileResult::Again(RECHECK_INTERVAL) } else { ReconcileResult::Done })
    }

    async fn remove_content(
        &self,
        content: &Value,
        taken: Option<Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let name = object::name(content);
        if let Some(taken) = taken.filter(|_| is_dropped(content)) {
            if !is_deleting(&taken) {
                let (own, uid) = (object::name(&taken), object::uid(&taken));
                let deleted = self.0.delete(SNAPSHOTS, NAMESPACE, own, uid).await;
                deleted.doing("delete the snapshot")?;
            }
            // Its deletion event names the content, if the snapshot's name contains it.
            return Ok(match plan::content_of(object::name(&taken)) {
                Some(_) => ReconcileResult::Done,
                None => ReconcileResult::Again(RECHECK_INTERVAL),
            });
        }
        self.release(CONTENTS, "", name, content, plan::CONTENT_BOUND).await?;
        self.snapshot(&bound_key(content)).await
    }

    async fn write_status(
        &self,
        resource: Resource,
        own: &Value,
        patch: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_merged(own, patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(own), object::name(own));
        match self.0.merge_status(resource, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say how a snapshot is"),
        }
    }

    async fn complain(
        &self,
        snapshot: &Value,
        why: &SnapshotError,
    ) -> Result<ReconcileResult, ReconcileError> {
        let message = Chain(why).to_string();
        let before = read::<VolumeSnapshotFields<'_>>(snapshot).status.error;
        if before.is_none_or(|own| own.message != message) {
            let patch = json!({"status": {
                "readyToUse": false,
                "error": {"time": clock::now_rfc3339(), "message": message},
            }});
            self.write_status(VOLUME_SNAPSHOTS, snapshot, &patch).await?;
            let regarding = Regarding {
                api_version: "snapshot.storage.k8s.io/v1",
                kind: "VolumeSnapshot",
                namespace: object::namespace(snapshot),
                name: object::name(snapshot),
                uid: object::uid(snapshot),
            };
            let reason = "SnapshotContentCreationFailed";
            event::record(&self.0.0, SOURCE, &regarding, EventType::Warning, reason, message).await;
        }
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }
}

/// The snapshot that a content names.
fn bound_key(content: &Value) -> ObjectKey {
    let to = plan::bound_to(content);
    ObjectKey::new(to.namespace, to.name)
}

/// Whether the snapshot behind a content goes with it.
fn is_dropped(content: &Value) -> bool {
    read::<VolumeSnapshotContentFields<'_>>(content).spec.deletion_policy == "Delete"
}

#[cfg(test)]
mod tests;
