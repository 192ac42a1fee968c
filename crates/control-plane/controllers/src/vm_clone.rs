//! Clones of machines: a snapshot of the source, restored under another name and identity.
//!
//! ```text
//!  SnapshotInProgress ─► RestoreInProgress ─► CreatingTargetVM ─► Succeeded
//!          └──────────────────────┴──────────────────┴──► Failed
//! ```
//!
//! Objects created on the way are deleted at the end. A clone whose machine is deleted is deleted
//! as well.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::Value;
use tracing::info;

use crate::condition;
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, is_merged, is_true, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, VM_CONTENTS, VM_RESTORES, VM_SNAPSHOTS, VMS, is_refused};

const CLONES: Resource = Resource::new("clone.kubevirt.io", "v1beta1", "virtualmachineclones");
const SOURCE: &str = "clone-controller";
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Clones, and the machines, snapshots and restores that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmCloneMapper(pub(crate) Dependents);

impl EventMapper for VmCloneMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if CLONES.is(kind) && *state == ObjectState::Live {
            vec![key]
        } else if VM_SNAPSHOTS.is(kind) || VM_RESTORES.is(kind) || VMS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VmCloneReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for VmCloneReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(CLONES, &key.namespace, &key.name).await;
        let clone = found.doing("get the clone")?;
        let Some(clone) = clone.filter(|own| !is_deleting(own)) else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        match text(&clone, "/status/phase") {
            "Succeeded" => self.follow(key, &clone).await,
            _ if plan::is_over(&clone) => {
                self.waiting.forget(key);
                Ok(ReconcileResult::Done)
            }
            _ => self.proceed(key, &clone).await,
        }
    }
}

impl VmCloneReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn proceed(
        &self,
        key: &ObjectKey,
        clone: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = &*key.namespace;
        let source = text(clone, "/spec/source/name");
        let names = [source.to_owned(), plan::snapshot_name(clone), plan::restore_name(clone)];
        let needs: BTreeSet<ObjectKey> =
            names.iter().map(|name| ObjectKey::new(namespace, name)).collect();
        self.waiting.set(key, needs);
        let Some(snapshot) = self.snapshot(clone).await? else {
            return self.wait(clone, "SourceDoesNotExist", "Source doesnt exist").await;
        };
        if condition::is(&snapshot, "Failure", "True") {
            let why = format!("snapshot {} failed", object::name(&snapshot));
            return self.fail(clone, "SnapshotContentInvalid", &why).await;
        }
        if let Some(why) = plan::left_out(&snapshot) {
            return self.fail(clone, "VMVolumeSnapshotsInvalid", &why).await;
        }
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.objects.get(VM_CONTENTS, namespace, content).await;
        let content = content.doing("get the content of a snapshot")?;
        let Some(content) = content.filter(|_| is_true(&snapshot, "/status/readyToUse")) else {
            return self
                .record_event(clone, &plan::in_phase(clone, "SnapshotInProgress", clock::now()))
                .await;
        };
        self.restore(clone, &content).await
    }

    /// The snapshot that is cloned; nothing if there is nothing to take it of.
    async fn snapshot(&self, clone: &Value) -> Result<Option<Value>, ReconcileError> {
        let namespace = object::namespace(clone);
        let name = plan::snapshot_name(clone);
        let found = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
        let found = found.doing("get the snapshot")?;
        if found.is_some() || !plan::is_of_machine(clone) {
            return Ok(found);
        }
        let source = text(clone, "/spec/source/name");
        let machine = self.objects.get(VMS, namespace, source).await.doing("get the machine")?;
        if machine.is_none() {
            return Ok(None);
        }
        match self.objects.create(VM_SNAPSHOTS, namespace, &plan::snapshot(clone)).await {
            Err(failure) if is_refused(&failure, 409) => {
                let made = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
                made.doing("get the snapshot")
            }
            made => {
                let made = made.doing("ask for a snapshot of the machine")?;
                let message = format!("created snapshot {name} for clone {}", object::name(clone));
                self.update_status(clone, EventType::Normal, "SnapshotCreated", message).await;
                Ok(Some(made))
            }
        }
    }

    async fn restore(
        &self,
        clone: &Value,
        content: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(clone);
        let captured = &content["spec"]["source"]["virtualMachine"];
        let target = plan::target_name(clone, object::name(captured));
        let name = plan::restore_name(clone);
        let found = self.objects.get(VM_RESTORES, namespace, &name).await;
        let restore = match found.doing("get the restore")? {
            Some(restore) => restore,
            None => {
                let taken = self.objects.get(VMS, namespace, &target).await;
                if taken.doing("get the machine")?.is_some() {
                    let why = format!("target VM {target} exists already");
                    return self.fail(clone, "RestoreCreationFailed", &why).await;
                }
                let wanted = plan::restore(clone, captured, &target);
                match self.objects.create(VM_RESTORES, namespace, &wanted).await {
                    Err(failure) if is_refused(&failure, 409) => {
                        return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                    }
                    made => {
                        let made = made.doing("ask for the machine to be restored")?;
                        let own = object::name(clone);
                        let message = format!("created restore {name} for clone {own}");
                        self.update_status(clone, EventType::Normal, "RestoreCreated", message)
                            .await;
                        made
                    }
                }
            }
        };
        if condition::is(&restore, "Failure", "True") {
            let all = object::list(&restore, "/status/conditions");
            let why = condition::find(all, "Failure").map_or("", |own| text(own, "/message"));
            return self.fail(clone, "RestoreCreationFailed", why).await;
        }
        if !is_true(&restore, "/status/complete") {
            return self
                .record_event(clone, &plan::in_phase(clone, "RestoreInProgress", clock::now()))
                .await;
        }
        self.finish(clone, &restore, &target).await
    }

    /// Says it before it cleans up, since what is cleaned up would be made anew.
    async fn finish(
        &self,
        clone: &Value,
        restore: &Value,
        target: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let own = object::name(clone);
        self.record_event(clone, &plan::succeeded(clone, target, clock::now())).await?;
        info!(namespace = object::namespace(clone), machine = target, "machine cloned");
        let message = format!("created target VM {target} for clone {own}");
        self.update_status(clone, EventType::Normal, "TargetVMCreated", message).await;
        let (namespace, uid) = (object::namespace(restore), object::uid(restore));
        let deleted = self.objects.delete(VM_RESTORES, namespace, object::name(restore), uid).await;
        deleted.doing("delete a restore")?;
        Ok(ReconcileResult::Again(Duration::ZERO))
    }

    /// Cleans up after a clone that is done.
    async fn follow(
        &self,
        key: &ObjectKey,
        clone: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = &*key.namespace;
        if plan::is_of_machine(clone) {
            let name = plan::snapshot_name(clone);
            let found = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
            if let Some(own) = found.doing("get the snapshot")?.filter(|own| !is_deleting(own)) {
                let uid = object::uid(&own);
                let deleted = self.objects.delete(VM_SNAPSHOTS, namespace, &name, uid).await;
                deleted.doing("delete a snapshot")?;
            }
        }
        let target = text(clone, "/status/targetName");
        self.waiting.set(key, [ObjectKey::new(namespace, target)].into());
        let machine = self.objects.get(VMS, namespace, target).await.doing("get the machine")?;
        if machine.is_none() {
            let deleted =
                self.objects.delete(CLONES, namespace, &key.name, object::uid(clone)).await;
            deleted.doing("delete a clone whose machine is gone")?;
        }
        Ok(ReconcileResult::Done)
    }

    async fn wait(
        &self,
        clone: &Value,
        reason: &str,
        why: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::pending(clone, why, clock::now());
        if !is_merged(clone, &patch) {
            self.update_status(clone, EventType::Normal, reason, why.to_owned()).await;
        }
        self.record_event(clone, &patch).await?;
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }

    async fn fail(
        &self,
        clone: &Value,
        reason: &str,
        why: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        self.update_status(clone, EventType::Warning, reason, why.to_owned()).await;
        self.record_event(clone, &plan::failed(clone, why, clock::now())).await
    }

    async fn update_status(&self, clone: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "clone.kubevirt.io/v1beta1",
            kind: "VirtualMachineClone",
            namespace: object::namespace(clone),
            name: object::name(clone),
            uid: object::uid(clone),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }

    async fn record_event(
        &self,
        clone: &Value,
        patch: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_merged(clone, patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(clone), object::name(clone));
        match self.objects.merge_status(CLONES, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say how a clone is"),
        }
    }
}

#[cfg(test)]
mod tests;
