//! Backups of machines on the backup target: making, removing and restoring them.

use std::time::Duration;

use base::clock;
use hci::longhorn::NAMESPACE as LONGHORN_NAMESPACE;
use serde_json::{Value, json};

use super::plan::{self, upload};
use super::{BACKUPS, RECHECK_INTERVAL, RESTORES, VmBackupReconciler};
use crate::longhorn::volume_snapshot::{CONTENTS, VOLUME_SNAPSHOTS};
use crate::longhorn::{BACKUP_TARGETS, BACKUPS as LONGHORN_BACKUPS};
use crate::object::{self, is_deleting, is_true, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::{Resource, VM_CONTENTS, VM_SNAPSHOTS, is_refused};

/// Objects are made in steps; the next one is soon.
const NEXT_STEP: Duration = Duration::from_millis(500);

impl VmBackupReconciler {
    /// Takes a machine's backup one step further.
    pub(super) async fn upload(&self, backup: &Value) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(backup);
        if is_deleting(backup) {
            return self.remove(backup).await;
        }
        if upload::is_over(backup) {
            self.describe(backup).await?;
            return self.drop_snapshot(backup).await;
        }
        if !upload::is_held(backup) {
            let mut meta = object::version(backup);
            let mut all = object::list(backup, "/metadata/finalizers").to_vec();
            all.push(json!(upload::FINALIZER));
            meta.insert("finalizers".into(), all.into());
            let patch = json!({"metadata": meta});
            let written = self.0.merge(BACKUPS, namespace, object::name(backup), &patch).await;
            written.doing("hold the backup")?;
            return Ok(ReconcileResult::Again(NEXT_STEP));
        }
        let target = self.0.get(BACKUP_TARGETS, LONGHORN_NAMESPACE, "default").await;
        let target = target.doing("get the backup target")?.unwrap_or_default();
        if text(&target, "/spec/backupTargetURL").is_empty() {
            let patch = plan::refused(backup, "backup target is not set", clock::now());
            return self.update_status(BACKUPS, backup, &patch).await;
        }
        let Some(snapshot) = self.machine_snapshot(backup).await? else {
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        };
        if !object::is_controlled_by(&snapshot, backup) {
            let name = object::name(backup);
            let why = format!("name \"{name}\" is already used by a snapshot");
            let patch = plan::refused(backup, &why, clock::now());
            return self.update_status(BACKUPS, backup, &patch).await;
        }
        if text(&snapshot, "/status/phase") == "Failed" {
            let why = match text(&snapshot, "/status/error/message") {
                "" => "snapshot deadline exceeded",
                why => why,
            };
            let patch = plan::refused(backup, why, clock::now());
            return self.update_status(BACKUPS, backup, &patch).await;
        }
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.0.get(VM_CONTENTS, namespace, content).await;
        let content = content.doing("get the content of a snapshot")?;
        let ready = is_true(&snapshot, "/status/readyToUse");
        let Some(content) = content.filter(|_| ready) else {
            self.update_status(BACKUPS, backup, &upload::waiting(backup, clock::now())).await?;
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        };
        let made = self.longhorn_backups(backup, &content).await?;
        let patch = upload::status(backup, &content, &target, &made, clock::now());
        self.update_status(BACKUPS, backup, &patch).await?;
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }

    /// The snapshot of the machine, which is asked for if it is not there.
    async fn machine_snapshot(&self, backup: &Value) -> Result<Option<Value>, ReconcileError> {
        let (namespace, name) = (object::namespace(backup), object::name(backup));
        let found = self.0.get(VM_SNAPSHOTS, namespace, name).await.doing("get the snapshot")?;
        if found.is_some() {
            return Ok(found);
        }
        match self.0.create(VM_SNAPSHOTS, namespace, &plan::snapshot(backup)).await {
            Err(failure) if is_refused(&failure, 409) => Ok(None),
            made => made.map(Some).doing("ask for a snapshot of the machine"),
        }
    }

    /// The backups of all disks; each is asked for as soon as its snapshot is there.
    async fn longhorn_backups(
        &self,
        backup: &Value,
        content: &Value,
    ) -> Result<Vec<Option<Value>>, ReconcileError> {
        let namespace = object::namespace(backup);
        let mut made = Vec::new();
        for (index, snapshot) in upload::snapshots(content).into_iter().enumerate() {
            let name = upload::longhorn_name(backup, index);
            let found = self.0.get(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, &name).await;
            if let Some(found) = found.doing("get the backup of a disk")? {
                made.push(Some(found).filter(|own| upload::belongs(own, backup)));
                continue;
            }
            let taken = self.0.get(VOLUME_SNAPSHOTS, namespace, snapshot).await;
            let taken = taken.doing("get the snapshot of a disk")?.unwrap_or_default();
            let bound = text(&taken, "/status/boundVolumeSnapshotContentName");
            let bound = self.0.get(CONTENTS, "", bound).await;
            let bound = bound.doing("get the content of a snapshot")?.unwrap_or_default();
            let handle = text(&bound, "/status/snapshotHandle");
            let Some(wanted) = upload::longhorn_backup(backup, index, handle) else {
                made.push(None);
                continue;
            };
            match self.0.create(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, &wanted).await {
                Err(failure) if is_refused(&failure, 409) => made.push(None),
                own => made.push(Some(own.doing("ask for the backup of a disk")?)),
            }
        }
        Ok(made)
    }

    /// The data is on the target, or never will be: the snapshot of the machine is of no use.
    async fn drop_snapshot(&self, backup: &Value) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (object::namespace(backup), object::name(backup));
        let found = self.0.get(VM_SNAPSHOTS, namespace, name).await.doing("get the snapshot")?;
        if let Some(own) = found
            && object::is_controlled_by(&own, backup)
            && !is_deleting(&own)
        {
            let deleted = self.0.delete(VM_SNAPSHOTS, namespace, name, object::uid(&own)).await;
            deleted.doing("delete the snapshot of the machine")?;
        }
        Ok(ReconcileResult::Done)
    }

    async fn remove(&self, backup: &Value) -> Result<ReconcileResult, ReconcileError> {
        if !upload::is_held(backup) {
            return Ok(ReconcileResult::Done);
        }
        self.drop_snapshot(backup).await?;
        let mut left = false;
        let all = self.0.list(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, "").await;
        for own in all.doing("list backups of disks")? {
            if !upload::belongs(&own, backup) {
                continue;
            }
            left = true;
            if !is_deleting(&own) {
                let (name, uid) = (object::name(&own), object::uid(&own));
                let gone = self.0.delete(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, name, uid).await;
                gone.doing("delete the backup of a disk")?;
            }
        }
        if left || !self.forget(backup).await? {
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        }
        let mut meta = object::version(backup);
        let rest = object::finalizers_without(backup, &[upload::FINALIZER]);
        meta.insert("finalizers".into(), rest.into());
        let (namespace, name) = (object::namespace(backup), object::name(backup));
        match self.0.merge(BACKUPS, namespace, name, &json!({"metadata": meta})).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("release a backup"),
        }
    }

    /// Makes what a restore refers to; nothing, with a status, if a backup of a disk is missing.
    pub(super) async fn prepare(
        &self,
        restore: &Value,
        backup: &Value,
    ) -> Result<Option<String>, ReconcileError> {
        let mut made = Vec::new();
        for name in upload::named(backup) {
            let found = self.0.get(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, &name).await;
            let found = found.doing("get the backup of a disk")?;
            let Some(found) = found.filter(|own| upload::belongs(own, backup)) else {
                let why = format!("backup {name} of a disk is not found");
                let patch = plan::refused_restore(restore, &why, clock::now());
                self.update_status(RESTORES, restore, &patch).await?;
                return Ok(None);
            };
            made.push(found);
        }
        let backup = self.with_known_classes(backup).await?;
        let wanted = upload::prepared(restore, &backup, &made);
        let namespace = object::namespace(restore);
        for (snapshot, content) in &wanted.disks {
            self.make(CONTENTS, "", content).await?;
            self.make(VOLUME_SNAPSHOTS, namespace, snapshot).await?;
        }
        self.make(VM_CONTENTS, namespace, &wanted.vm_content).await?;
        self.make(VM_SNAPSHOTS, namespace, &wanted.vm_snapshot).await?;
        let patch = json!({"status": {"readyToUse": true, "phase": "Succeeded",
            "virtualMachineSnapshotContentName": wanted.name}});
        let written = self.0.merge_status(VM_SNAPSHOTS, namespace, &wanted.name, &patch).await;
        written.doing("make a snapshot of the backup ready")?;
        Ok(Some(wanted.name))
    }

    async fn make(
        &self,
        resource: Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<(), ReconcileError> {
        match self.0.create(resource, namespace, object).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            made => made.map(drop).doing("make a snapshot of the backup"),
        }
    }

    /// The snapshots of disks have done their work. Their contents are in no namespace, so nothing
    /// collects them with the restore.
    pub(super) async fn drop_contents(&self, restore: &Value) -> Result<(), ReconcileError> {
        let base = format!("restore-{}-", object::uid(restore));
        let namespace = object::namespace(restore);
        let all = self.0.list(VOLUME_SNAPSHOTS, namespace, "").await;
        let all = all.doing("list snapshots of disks")?;
        for own in all.iter().filter(|own| object::is_controlled_by(own, restore)) {
            let (name, uid) = (object::name(own), object::uid(own));
            let deleted = self.0.delete(VOLUME_SNAPSHOTS, namespace, name, uid).await;
            deleted.doing("delete the snapshot of a disk")?;
        }
        let all = self.0.list(CONTENTS, "", "").await.doing("list contents of snapshots")?;
        for own in all.iter().filter(|own| object::name(own).starts_with(&base)) {
            let (name, uid) = (object::name(own), object::uid(own));
            self.0.delete(CONTENTS, "", name, uid).await.doing("delete a content")?;
        }
        Ok(())
    }
}
