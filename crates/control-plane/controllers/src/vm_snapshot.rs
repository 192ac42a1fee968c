//! Snapshots of whole machines: all disks at one instant.
//!
//! Here the disks are only tied to each other (`hci::together`). The node that runs the machine
//! keeps the guest still for the instant, since only there that takes no longer than it must.

mod indication;
mod plan;
mod source;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use hci::longhorn::NAMESPACE;
use hci::together::Quiesce;
use kube::Client;
use serde_json::{Value, json};
use tracing::info;

use self::plan::DiskProgress;
use self::source::FoundClaim;
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::SNAPSHOTS;
use crate::longhorn::volume_snapshot::{self, VOLUME_SNAPSHOTS};
use crate::object::{self, has_finalizer, is_deleting, is_merged, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{
    CLAIMS, DATA_VOLUMES, Objects, Resource, VM_CONTENTS, VM_SNAPSHOTS, VMIS, VMS, is_refused,
};

const SNAPSHOT_CLASSES: Resource =
    Resource::new(hci::snapshot::GROUP, "v1", "volumesnapshotclasses");
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Snapshots of machines, and those of disks that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmSnapshotMapper(pub(crate) Dependents);

impl EventMapper for VmSnapshotMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if VM_SNAPSHOTS.is(kind) && *state != ObjectState::Gone {
            vec![key]
        } else if VOLUME_SNAPSHOTS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VmSnapshotReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for VmSnapshotReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VM_SNAPSHOTS, &key.namespace, &key.name).await;
        let Some(snapshot) = found.doing("get the snapshot")? else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let content = plan::content_name(&snapshot);
        let content = self.objects.get(VM_CONTENTS, &key.namespace, &content).await;
        let content = content.doing("get the content of a snapshot")?;
        if is_deleting(&snapshot) {
            return self.remove(&snapshot, content).await;
        }
        if plan::is_over(&snapshot) || plan::is_prepared(&snapshot) {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        }
        self.hold_object(&snapshot).await?;
        if plan::is_late(&snapshot, clock::now()) {
            self.unmark(&snapshot).await?;
            let patch = plan::failed(&snapshot, "snapshot deadline exceeded", clock::now());
            return self.update_status(VM_SNAPSHOTS, &snapshot, &patch).await;
        }
        match content {
            Some(content) if !source::is_own_content(&snapshot, &content) => {
                self.unmark(&snapshot).await?;
                let patch = plan::failed(&snapshot, source::FOREIGN_CONTENT, clock::now());
                self.update_status(VM_SNAPSHOTS, &snapshot, &patch).await
            }
            Some(content) => self.proceed(key, &snapshot, &content).await,
            None => self.begin(key, &snapshot).await,
        }
    }
}

impl VmSnapshotReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn hold_object(&self, snapshot: &Value) -> Result<(), ReconcileError> {
        if has_finalizer(snapshot, plan::FINALIZER) {
            return Ok(());
        }
        let mut meta = object::version(snapshot);
        let mut all = object::list(snapshot, "/metadata/finalizers").to_vec();
        all.push(json!(plan::FINALIZER));
        meta.insert("finalizers".into(), all.into());
        let (namespace, name) = (object::namespace(snapshot), object::name(snapshot));
        let patch = json!({"metadata": meta});
        let written = self.objects.merge(VM_SNAPSHOTS, namespace, name, &patch).await;
        written.map(drop).doing("hold the snapshot")
    }

    /// Writes down the machine and its disks, and how the guest is kept still.
    async fn begin(
        &self,
        key: &ObjectKey,
        snapshot: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = &*key.namespace;
        let machine = text(snapshot, "/spec/source/name");
        let found = self.objects.get(VMS, namespace, machine).await.doing("get the machine")?;
        let Some(vm) = found else {
            return self.wait(snapshot, "Source does not exist").await;
        };
        let claims = self.claims(&vm).await?;
        if let Some(why) = source::obstacle(&vm, &claims) {
            return self.wait(snapshot, &why).await;
        }
        if !self.lock(key, &vm).await? {
            return self.wait(snapshot, &source::is_busy(&vm)).await;
        }
        let vmi = self.objects.get(VMIS, namespace, machine).await.doing("get the instance")?;
        let disks: Vec<_> = claims.into_iter().map(plan::disk).collect();
        let patch = plan::begun(snapshot, &vm, vmi.as_ref(), &disks, clock::now());
        self.update_status(VM_SNAPSHOTS, snapshot, &patch).await?;
        // The status that was just written counts if all disks are captured already.
        let mut begun = snapshot.clone();
        begun["status"] = patch["status"].clone();
        let wanted = plan::content(&begun, &vm, vmi.as_ref(), &disks);
        match self.objects.create(VM_CONTENTS, namespace, &wanted).await {
            Err(failure) if is_refused(&failure, 409) => {
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
            made => {
                let content = made.doing("create the content of a snapshot")?;
                self.proceed(key, &begun, &content).await
            }
        }
    }

    /// Makes this snapshot the only one of its machine that is being taken: two at once would
    /// freeze and thaw the guest for each other. False while another one is.
    async fn lock(&self, key: &ObjectKey, vm: &Value) -> Result<bool, ReconcileError> {
        let holder = text(vm, "/status/snapshotInProgress");
        if holder == &*key.name {
            return Ok(true);
        }
        let other = self.objects.get(VM_SNAPSHOTS, &key.namespace, holder).await;
        if other.doing("get the snapshot in progress")?.is_some_and(|own| !plan::is_over(&own)) {
            return Ok(false);
        }
        // Refused if another client wrote the machine meanwhile, another snapshot for instance.
        let patch = json!({"metadata": object::version(vm),
            "status": {"snapshotInProgress": key.name}});
        self.update_status(VMS, vm, &patch).await.map(|_| true)
    }

    async fn wait(&self, snapshot: &Value, why: &str) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::waiting(snapshot, why, clock::now());
        self.update_status(VM_SNAPSHOTS, snapshot, &patch).await?;
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }

    async fn claims(&self, vm: &Value) -> Result<Vec<FoundClaim>, ReconcileError> {
        let namespace = object::namespace(vm);
        let mut all = Vec::new();
        for (volume, name) in plan::claims(vm) {
            let claim = self.objects.get(CLAIMS, namespace, name).await.doing("get a claim")?;
            let behind = self.objects.volume_of(claim.as_ref()).await.doing("get a volume")?;
            let import = match claim.as_ref().and_then(source::import_name) {
                Some(import) => self.objects.get(DATA_VOLUMES, namespace, import).await,
                None => Ok(None),
            };
            let import = import.doing("get the import of a disk")?;
            let (volume, name) = (volume.to_owned(), name.to_owned());
            all.push(FoundClaim { volume, name, claim, behind, import });
        }
        Ok(all)
    }

    async fn proceed(
        &self,
        key: &ObjectKey,
        snapshot: &Value,
        content: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = &*key.namespace;
        let names = plan::snapshot_names(content);
        let needs: BTreeSet<ObjectKey> =
            names.iter().map(|name| ObjectKey::new(namespace, name)).collect();
        self.waiting.set(key, needs);
        let mut taken = Vec::new();
        for name in &names {
            let found = self.objects.get(VOLUME_SNAPSHOTS, namespace, name).await;
            taken.extend(found.doing("get the snapshot of a disk")?);
        }
        if taken.len() < names.len() {
            return self.take(content).await;
        }
        match plan::progress(&taken) {
            DiskProgress::Waiting => Ok(ReconcileResult::Again(RECHECK_INTERVAL)),
            DiskProgress::Failed(why) => {
                let patch = plan::faulty(snapshot, &why, clock::now());
                self.update_status(VM_SNAPSHOTS, snapshot, &patch).await?;
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
            DiskProgress::Taken { ready } => {
                let patch = plan::content_status(&taken, ready, clock::now());
                self.update_status(VM_CONTENTS, content, &patch).await?;
                if !ready {
                    return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                }
                self.unmark(snapshot).await?;
                let quiesce = self.quiesce(taken.first()).await?;
                let patch = plan::succeeded(snapshot, &taken, quiesce, clock::now());
                info!(namespace, snapshot = &*key.name, disks = taken.len(), "machine captured");
                self.update_status(VM_SNAPSHOTS, snapshot, &patch).await
            }
        }
    }

    /// How the guest was prepared, which Longhorn's snapshot of any of the disks says.
    async fn quiesce(&self, taken: Option<&Value>) -> Result<Option<Quiesce>, ReconcileError> {
        let Some(taken) = taken else { return Ok(None) };
        let name = volume_snapshot::longhorn_name(object::uid(taken));
        let found = self.objects.get(SNAPSHOTS, NAMESPACE, &name).await;
        Ok(found.doing("get Longhorn's snapshot of a disk")?.as_ref().and_then(indication::quiesce))
    }

    /// Asks for all disks at once.
    async fn take(&self, content: &Value) -> Result<ReconcileResult, ReconcileError> {
        let classes = self.objects.list(SNAPSHOT_CLASSES, "", "").await;
        let classes = classes.doing("list snapshot classes")?;
        let namespace = object::namespace(content);
        for wanted in plan::snapshots(content, &classes) {
            match self.objects.create(VOLUME_SNAPSHOTS, namespace, &wanted).await {
                Err(failure) if is_refused(&failure, 409) => {}
                made => drop(made.doing("ask for the snapshot of a disk")?),
            }
        }
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }

    /// The machine may be changed again.
    async fn unmark(&self, snapshot: &Value) -> Result<(), ReconcileError> {
        let machine = text(snapshot, "/spec/source/name");
        let found = self.objects.get(VMS, object::namespace(snapshot), machine).await;
        let Some(vm) = found.doing("get the machine")? else { return Ok(()) };
        if text(&vm, "/status/snapshotInProgress") == object::name(snapshot) {
            self.update_status(VMS, &vm, &json!({"status": {"snapshotInProgress": null}})).await?;
        }
        Ok(())
    }

    /// The snapshots of disks go with the content.
    async fn remove(
        &self,
        snapshot: &Value,
        content: Option<Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        self.unmark(snapshot).await?;
        if let Some(content) = content {
            let dropped = text(snapshot, "/spec/deletionPolicy") != "Retain";
            if dropped && !is_deleting(&content) {
                let (namespace, name) = (object::namespace(&content), object::name(&content));
                let uid = object::uid(&content);
                let deleted = self.objects.delete(VM_CONTENTS, namespace, name, uid).await;
                deleted.doing("delete the content of a snapshot")?;
            }
        }
        if !has_finalizer(snapshot, plan::FINALIZER) {
            return Ok(ReconcileResult::Done);
        }
        let mut meta = object::version(snapshot);
        let left = object::finalizers_without(snapshot, &[plan::FINALIZER]);
        meta.insert("finalizers".into(), left.into());
        let (namespace, name) = (object::namespace(snapshot), object::name(snapshot));
        let patch = json!({"metadata": meta});
        match self.objects.merge(VM_SNAPSHOTS, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("release the snapshot"),
        }
    }

    async fn update_status(
        &self,
        resource: Resource,
        own: &Value,
        patch: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_merged(own, patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(own), object::name(own));
        match self.objects.merge_status(resource, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say how a snapshot is"),
        }
    }
}

#[cfg(test)]
mod tests;
