//! Descriptions of backed-up machines: handing them to the node that owns the target, creating
//! backups of those that it found there, and restoring the secrets in them.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Chain, clock};
use hci::longhorn::NAMESPACE as LONGHORN_NAMESPACE;
use hci::vm_backup_metadata::{VmBackupMetadata, secret_name};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::plan::metadata::{self, Import, MetadataState};
use super::plan::upload;
use super::{BACKUPS, VmBackupReconciler};
use crate::longhorn::{BACKUP_TARGETS, BACKUPS as LONGHORN_BACKUPS};
use crate::object::{self, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::{Resource, SECRETS, is_refused};

const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
const STORAGE_CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
/// Objects of Longhorn's follow what is on the target when it is read the next time.
const UNTIL_NEXT_SYNC: Duration = Duration::from_secs(15);

impl VmBackupReconciler {
    /// Has the description of a complete backup written to the target.
    pub(super) async fn describe(&self, backup: &Value) -> Result<(), ReconcileError> {
        let ready = object::is_true(backup, "/status/readyToUse");
        if !ready || metadata::state(backup) != MetadataState::Unwritten {
            return Ok(());
        }
        // The status is for users to write; only what was made here is described.
        for name in upload::named(backup) {
            let disk = self.0.get(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, &name).await;
            let disk = disk.doing("get the backup of a disk")?;
            if !disk.is_some_and(|own| upload::belongs(&own, backup)) {
                return Ok(());
            }
        }
        let mut secrets = Vec::new();
        for name in metadata::secrets_of(backup) {
            let found = self.0.get(SECRETS, object::namespace(backup), &name).await;
            // One that is gone by now is not restored either.
            secrets.extend(
                found.doing("get a secret of the machine")?.iter().map(metadata::secret_backup),
            );
        }
        let Some(described) = metadata::described(backup, secrets) else { return Ok(()) };
        self.write_carrier(object::uid(backup), &described).await?;
        let patch = metadata::handed_over(backup, &described, clock::now());
        self.update_status(BACKUPS, backup, &patch).await.map(drop)
    }

    async fn write_carrier(
        &self,
        uid: &str,
        described: &VmBackupMetadata,
    ) -> Result<(), ReconcileError> {
        let secret = metadata::carrier(uid, described);
        match self.0.create(SECRETS, LONGHORN_NAMESPACE, &secret).await {
            Err(failure) if is_refused(&failure, 409) => {
                let patch = json!({"data": secret["data"]});
                let name = object::name(&secret);
                let written = self.0.merge(SECRETS, LONGHORN_NAMESPACE, name, &patch).await;
                written.map(drop).doing("write the description of a backup")
            }
            made => made.map(drop).doing("write the description of a backup"),
        }
    }

    /// Whether nothing of the description is left, here and on the target.
    pub(super) async fn forget(&self, backup: &Value) -> Result<bool, ReconcileError> {
        let target = self.0.get(BACKUP_TARGETS, LONGHORN_NAMESPACE, "default").await;
        let target = target.doing("get the backup target")?.unwrap_or_default();
        if metadata::is_on_target(backup, &target) {
            return Ok(false);
        }
        self.delete_carrier(&secret_name(object::uid(backup))).await?;
        Ok(true)
    }

    async fn delete_carrier(&self, name: &str) -> Result<(), ReconcileError> {
        let found = self.0.get(SECRETS, LONGHORN_NAMESPACE, name).await;
        let Some(found) = found.doing("get the description of a backup")? else { return Ok(()) };
        let uid = object::uid(&found);
        let deleted = self.0.delete(SECRETS, LONGHORN_NAMESPACE, name, uid).await;
        deleted.doing("delete the description of a backup")
    }

    /// Creates the backup that a file of the target describes.
    pub(super) async fn import(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(SECRETS, LONGHORN_NAMESPACE, name).await;
        let Some(secret) = found.doing("get the description of a backup")? else {
            return Ok(ReconcileResult::Done);
        };
        let described = match VmBackupMetadata::parse(&metadata::carried(&secret)) {
            Ok(described) => described,
            Err(failure) => {
                warn!(secret = name, error = %Chain(&failure), "a description of a backup on the target is refused");
                return Ok(ReconcileResult::Done);
            }
        };
        let existing = self.0.get(BACKUPS, &described.namespace, &described.name).await;
        let existing = existing.doing("get the backup")?;
        let mut disks = Vec::new();
        for disk in &described.volume_backups {
            let disk = disk.longhorn_backup_name.as_deref().unwrap_or_default();
            let found = self.0.get(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, disk).await;
            disks.push(found.doing("get the backup of a disk")?);
        }
        let all = self.0.list(BACKUPS, "", "").await.doing("list backups of machines")?;
        let owners: BTreeSet<String> = all.iter().map(|own| object::uid(own).to_owned()).collect();
        let backup = match metadata::import(&secret, &described, existing.as_ref(), &disks, &owners)
        {
            Import::Known => None,
            Import::Complete => existing,
            Import::Wait { backup } => {
                info!(
                    namespace = described.namespace,
                    name = described.name,
                    disk = backup,
                    "a backup of the target waits for the backup of a disk"
                );
                return Ok(ReconcileResult::Again(UNTIL_NEXT_SYNC));
            }
            Import::Create => Some(self.create_imported(&secret, &described).await?),
        };
        if let Some(backup) = backup {
            self.own_disks(&backup, &disks).await?;
            self.write_carrier(object::uid(&backup), &described).await?;
        }
        self.delete_carrier(name).await?;
        Ok(ReconcileResult::Done)
    }

    async fn create_imported(
        &self,
        secret: &Value,
        described: &VmBackupMetadata,
    ) -> Result<Value, ReconcileError> {
        let space = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": described.namespace}});
        match self.0.create(NAMESPACES, "", &space).await {
            Err(failure) if is_refused(&failure, 409) => {}
            made => drop(made.doing("create the namespace of a backup")?),
        }
        let target = self.0.get(BACKUP_TARGETS, LONGHORN_NAMESPACE, "default").await;
        let target = target.doing("get the backup target")?.unwrap_or_default();
        let wanted = metadata::imported(secret, described, &target, clock::now());
        let made = self.0.create(BACKUPS, &described.namespace, &wanted).await;
        made.doing("create a backup of the target")
    }

    /// The backups of disks go with the backup of their machine.
    async fn own_disks(
        &self,
        backup: &Value,
        disks: &[Option<Value>],
    ) -> Result<(), ReconcileError> {
        for disk in disks.iter().flatten() {
            let note = json!({"metadata": {"annotations": upload::mark(backup)}});
            let name = object::name(disk);
            let written = self.0.merge(LONGHORN_BACKUPS, LONGHORN_NAMESPACE, name, &note).await;
            written.doing("mark the backup of a disk")?;
        }
        Ok(())
    }

    /// Gives a restored machine the secrets that its backup holds.
    pub(super) async fn restore_secrets(
        &self,
        restore: &Value,
        backup: &Value,
        vm: &Value,
    ) -> Result<(), ReconcileError> {
        if object::list(backup, "/status/secretBackups").is_empty() {
            return Ok(());
        }
        let carrier = secret_name(object::uid(backup));
        let found = self.0.get(SECRETS, LONGHORN_NAMESPACE, &carrier).await;
        let found = found.doing("get the description of a backup")?;
        let read = found.map(|own| VmBackupMetadata::parse(&metadata::carried(&own)));
        let Some(Ok(described)) = read else { return Ok(()) };
        for own in &described.secret_backups {
            let secret = metadata::restored_secret(restore, vm, own);
            let namespace = object::namespace(restore);
            match self.0.create(SECRETS, namespace, &secret).await {
                Err(failure) if is_refused(&failure, 409) => {
                    let patch = json!({"data": secret["data"]});
                    let name = text(&secret, "/metadata/name");
                    let written = self.0.merge(SECRETS, namespace, name, &patch).await;
                    written.doing("restore a secret of the machine")?;
                }
                made => drop(made.doing("restore a secret of the machine")?),
            }
        }
        Ok(())
    }

    /// The backup with the storage classes that there are.
    pub(super) async fn with_known_classes(&self, backup: &Value) -> Result<Value, ReconcileError> {
        let all = self.0.list(STORAGE_CLASSES, "", "").await.doing("list storage classes")?;
        let known = all.iter().map(|own| object::name(own).to_owned()).collect();
        Ok(metadata::with_known_classes(backup, &known))
    }
}
