//! Harvester's snapshots and backups of machines, and going back to them: each is carried out as a
//! snapshot of KubeVirt's of the same name, whose state is repeated in Harvester's words.
//!
//! A backup (`upload`) is a snapshot of which each disk is sent to the backup target by Longhorn's
//! backups; the snapshot goes when that is done. A description of the machine follows (`metadata`),
//! of which other clusters make the backup again.

mod metadata;
mod plan;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use base::clock;
use hci::longhorn::NAMESPACE as LONGHORN_NAMESPACE;
use hci::vm_backup_metadata::FOUND_PREFIX;
use kube::Client;
use serde_json::{Value, json};

use crate::key::ObjectKey;
use crate::object::{self, is_deleting, is_merged, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{
    Objects, Resource, SECRETS, VM_CONTENTS, VM_RESTORES, VM_SNAPSHOTS, VMS, is_refused,
};

pub(crate) const BACKUPS: Resource =
    Resource::new("harvesterhci.io", "v1beta1", "virtualmachinebackups");
const RESTORES: Resource = Resource::new("harvesterhci.io", "v1beta1", "virtualmachinerestores");
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VmBackupKey {
    Backup(ObjectKey),
    Restore(ObjectKey),
    /// A description that was found on the target, by the name of its Secret.
    Found(Arc<str>),
}

/// Harvester's objects and KubeVirt's of the same names.
#[derive(Debug, Default)]
pub(crate) struct VmBackupMapper;

impl EventMapper for VmBackupMapper {
    type Key = VmBackupKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<VmBackupKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        if *state == ObjectState::Gone {
            return Vec::new();
        }
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if BACKUPS.is(kind) || VM_SNAPSHOTS.is(kind) {
            vec![VmBackupKey::Backup(key)]
        } else if RESTORES.is(kind) || VM_RESTORES.is(kind) {
            vec![VmBackupKey::Restore(key)]
        } else if SECRETS.is(kind)
            && **namespace == *LONGHORN_NAMESPACE
            && name.starts_with(FOUND_PREFIX)
        {
            vec![VmBackupKey::Found(Arc::clone(name))]
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VmBackupReconciler(Objects);

impl Reconciler for VmBackupReconciler {
    type Key = VmBackupKey;

    async fn reconcile(&self, work: &VmBackupKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            VmBackupKey::Backup(key) => self.backup(key).await,
            VmBackupKey::Restore(key) => self.restore(key).await,
            VmBackupKey::Found(name) => self.import(name).await,
        }
    }
}

impl VmBackupReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn backup(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(BACKUPS, &key.namespace, &key.name).await.doing("get the backup")?;
        let Some(backup) = found else { return Ok(ReconcileResult::Done) };
        if text(&backup, "/spec/type") != "snapshot" {
            return self.upload(&backup).await;
        }
        if is_deleting(&backup) {
            return Ok(ReconcileResult::Done);
        }
        let snapshot = self.0.get(VM_SNAPSHOTS, &key.namespace, &key.name).await;
        let snapshot = match snapshot.doing("get the snapshot")? {
            Some(snapshot) => snapshot,
            None => {
                match self.0.create(VM_SNAPSHOTS, &key.namespace, &plan::snapshot(&backup)).await {
                    Err(failure) if is_refused(&failure, 409) => {
                        return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                    }
                    made => made.doing("ask for a snapshot of the machine")?,
                }
            }
        };
        if !object::is_controlled_by(&snapshot, &backup) {
            let why = format!("name \"{}\" is already used by a snapshot", key.name);
            return self
                .update_status(BACKUPS, &backup, &plan::refused(&backup, &why, clock::now()))
                .await;
        }
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.0.get(VM_CONTENTS, &key.namespace, content).await;
        let content = content.doing("get the content of a snapshot")?;
        let patch = plan::backup_status(&backup, &snapshot, content.as_ref(), clock::now());
        self.update_status(BACKUPS, &backup, &patch).await
    }

    async fn restore(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(RESTORES, &key.namespace, &key.name).await;
        let found = found.doing("get the restore")?;
        let Some(restore) = found.filter(|own| !is_deleting(own) && !plan::is_over(own)) else {
            return Ok(ReconcileResult::Done);
        };
        let backup = text(&restore, "/spec/virtualMachineBackupName");
        let backup = self.0.get(BACKUPS, plan::backup_namespace(&restore), backup).await;
        let backup = backup.doing("get the backup")?;
        let target = text(&restore, "/spec/target/name");
        let vm = self.0.get(VMS, &key.namespace, target).await.doing("get the machine")?;
        let inner = self.0.get(VM_RESTORES, &key.namespace, &key.name).await;
        let inner = match inner.doing("get the restore")? {
            Some(inner) => inner,
            None => {
                if let Err(why) = plan::judge(&restore, backup.as_ref(), vm.as_ref()) {
                    let why = why.to_string();
                    let patch = plan::refused_restore(&restore, &why, clock::now());
                    self.update_status(RESTORES, &restore, &patch).await?;
                    return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                }
                let snapshot = match &backup {
                    Some(own) if text(own, "/spec/type") != "snapshot" => {
                        self.prepare(&restore, own).await?
                    }
                    _ => Some(text(&restore, "/spec/virtualMachineBackupName").to_owned()),
                };
                let Some(snapshot) = snapshot else {
                    return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                };
                let wanted = plan::inner(&restore, backup.as_ref(), &snapshot);
                match self.0.create(VM_RESTORES, &key.namespace, &wanted).await {
                    Err(failure) if is_refused(&failure, 409) => {
                        return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                    }
                    made => made.doing("ask for the machine to be restored")?,
                }
            }
        };
        let done = object::is_true(&inner, "/status/complete");
        if let Some(vm) = vm.as_ref().filter(|_| done)
            && let Some(patch) = plan::machine_patch(&restore, vm)
        {
            if let Some(backup) = &backup {
                self.restore_secrets(&restore, backup, vm).await?;
            }
            let written = self.0.merge(VMS, &key.namespace, target, &patch).await;
            written.doing("start the restored machine")?;
        }
        if done {
            self.drop_contents(&restore).await?;
        }
        let patch = plan::restore_status(&restore, &inner, vm.as_ref(), clock::now());
        self.update_status(RESTORES, &restore, &patch).await
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
        let mut patch = patch.clone();
        patch["metadata"] = json!({"uid": object::uid(own)});
        match self.0.merge(resource, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say how a backup is"),
        }
    }
}

#[cfg(test)]
mod tests;
