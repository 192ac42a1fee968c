//! Harvester's setting `backup-target` becomes Longhorn's BackupTarget `default` with its Secret,
//! and the setting says whether the target can be reached.
//!
//! A node that is ready manages the target: `status.ownerID` names it.

mod plan;

use std::sync::Arc;

use base::clock;
use hci::longhorn::{BACKUP_TARGET_SECRET, DEFAULT_BACKUP_TARGET, NAMESPACE};
use kube::Client;
use serde_json::{Value, json};

use super::BACKUP_TARGETS;
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::record::setting;
use crate::resource::{NODES, Objects, Resource, SECRETS, is_refused};

const HARVESTER_SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");
const SETTING: &str = "backup-target";

/// The setting, the target, and nodes that may manage it.
#[derive(Debug, Default)]
pub(crate) struct BackupTargetMapper;

impl EventMapper for BackupTargetMapper {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        let ObjectChange::Object { kind, name, .. } = touch else { return Vec::new() };
        let concerns = HARVESTER_SETTINGS.is(kind) && **name == *SETTING
            || BACKUP_TARGETS.is(kind) && **name == *DEFAULT_BACKUP_TARGET
            || NODES.is(kind);
        if concerns { vec![DEFAULT_BACKUP_TARGET.into()] } else { Vec::new() }
    }
}

pub(crate) struct BackupTargetReconciler(Objects);

impl Reconciler for BackupTargetReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, _: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let setting = self.0.get(HARVESTER_SETTINGS, "", SETTING).await.doing("get the setting")?;
        let target = self.0.get(BACKUP_TARGETS, NAMESPACE, DEFAULT_BACKUP_TARGET).await;
        let Some(target) = target.doing("get the backup target")? else {
            return Ok(ReconcileResult::Done);
        };
        let target = match &setting {
            Some(setting) => self.follow(setting, target).await?,
            None => target,
        };
        let nodes = self.0.list(NODES, "", "").await.doing("list nodes")?;
        if let Some(patch) = plan::assignment(&target, &nodes) {
            let name = object::name(&target);
            let written = self.0.merge_status(BACKUP_TARGETS, NAMESPACE, name, &patch).await;
            written.doing("choose a node for the backup target")?;
        }
        if let Some(patch) =
            setting.as_ref().and_then(|own| plan::setting_status(own, &target, clock::now()))
        {
            match self.0.merge(HARVESTER_SETTINGS, "", SETTING, &patch).await {
                Err(failure) if is_refused(&failure, 404) => {}
                written => drop(written.doing("write the setting's status")?),
            }
        }
        Ok(ReconcileResult::Done)
    }
}

impl BackupTargetReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// The secret first: a target that is seen has its keys. The keys leave the setting last.
    async fn follow(&self, setting: &Value, target: Value) -> Result<Value, ReconcileError> {
        let Some(wanted) = plan::target(setting::value(setting)) else { return Ok(target) };
        if let Some(data) = &wanted.secret {
            self.write_secret(data).await?;
        }
        let mut target = target;
        if !is_merged(&target, &wanted.patch) || wanted.secret.is_some() {
            let mut patch = wanted.patch.clone();
            if wanted.secret.is_some() {
                // New keys are tried although the URL is the same.
                patch["spec"]["syncRequestedAt"] = json!(clock::now_rfc3339());
            }
            let name = object::name(&target).to_owned();
            let written = self.0.merge(BACKUP_TARGETS, NAMESPACE, &name, &patch).await;
            written.doing("change the backup target")?;
            // The status of the former target is not valid for this one.
            let unknown = json!({"status": {"available": null}});
            let written = self.0.merge_status(BACKUP_TARGETS, NAMESPACE, &name, &unknown).await;
            target = written.doing("forget the state of the former target")?;
        }
        if let Some(stripped) = &wanted.stripped {
            let mut meta = object::version(setting);
            meta.remove("uid");
            let patch = json!({"metadata": meta, "value": stripped});
            let written = self.0.merge(HARVESTER_SETTINGS, "", SETTING, &patch).await;
            written.doing("remove the keys from the setting")?;
        }
        Ok(target)
    }

    async fn write_secret(&self, data: &Value) -> Result<(), ReconcileError> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": data,
            "metadata": {"name": BACKUP_TARGET_SECRET, "namespace": NAMESPACE},
        });
        match self.0.create(SECRETS, NAMESPACE, &secret).await {
            Err(failure) if is_refused(&failure, 409) => {
                let patch = json!({"stringData": data});
                let written = self.0.merge(SECRETS, NAMESPACE, BACKUP_TARGET_SECRET, &patch).await;
                written.map(drop).doing("change the secret of the backup target")
            }
            made => made.map(drop).doing("create the secret of the backup target"),
        }
    }
}
