//! Longhorn's snapshots: only an engine that runs can take or remove one, so a volume at rest
//! is attached for as long as that takes.
//!
//! The node of the engine does the work and says how it went.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use base::clock;
use hci::longhorn::{NAMESPACE, VOLUME_LABEL};
use kube::Client;
use serde_json::{Value, json};

use self::plan::SnapshotStep;
use super::record::SnapshotFields;
use super::volume::ticket::tickets;
use super::{ATTACHMENTS, LONGHORN_VOLUMES, REPLICAS, SNAPSHOTS};
use crate::object::{self, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{Objects, is_refused};

/// When a volume has no replicas yet.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SnapshotKey {
    Snapshot(Arc<str>),
    /// An attachment may hold tickets of snapshots that are gone.
    Attachment(Arc<str>),
}

#[derive(Debug, Default)]
pub(crate) struct SnapshotMapper;

impl EventMapper for SnapshotMapper {
    type Key = SnapshotKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<SnapshotKey> {
        match touch {
            ObjectChange::Object { kind, name, .. } if SNAPSHOTS.is(kind) => {
                vec![SnapshotKey::Snapshot(Arc::clone(name))]
            }
            ObjectChange::Object { kind, name, .. } if ATTACHMENTS.is(kind) => {
                vec![SnapshotKey::Attachment(Arc::clone(name))]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct SnapshotReconciler(Objects);

impl Reconciler for SnapshotReconciler {
    type Key = SnapshotKey;

    async fn reconcile(&self, work: &SnapshotKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            SnapshotKey::Snapshot(name) => self.snapshot(name).await,
            SnapshotKey::Attachment(name) => self.sweep(name).await,
        }
    }
}

impl SnapshotReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn snapshot(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(SNAPSHOTS, NAMESPACE, name).await.doing("get the snapshot")?;
        let Some(snapshot) = found else { return self.gone(name).await };
        let volume = read::<SnapshotFields<'_>>(&snapshot).spec.volume;
        let found =
            self.0.get(LONGHORN_VOLUMES, NAMESPACE, volume).await.doing("get the volume")?;
        match plan::step(&snapshot, found.as_ref()) {
            SnapshotStep::Adopt(patch) => {
                let written = self.0.merge(SNAPSHOTS, NAMESPACE, name, &patch).await;
                written.doing("adopt a snapshot")?;
                Ok(ReconcileResult::Done)
            }
            SnapshotStep::Fail(why) => {
                let patch = json!({"status": {"error": why, "readyToUse": false}});
                let written = self.0.merge_status(SNAPSHOTS, NAMESPACE, name, &patch).await;
                written.map(|_| ReconcileResult::Done).doing("say why there is no snapshot")
            }
            SnapshotStep::Release(patch) => {
                match self.0.merge(SNAPSHOTS, NAMESPACE, name, &patch).await {
                    Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
                    written => written.map(|_| ReconcileResult::Done).doing("release a snapshot"),
                }
            }
            SnapshotStep::Attach => self.attach(name, volume).await,
            SnapshotStep::Done => self.drop_ticket(name, volume).await,
        }
    }

    async fn attach(&self, name: &str, volume: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(ATTACHMENTS, NAMESPACE, volume).await;
        let Some(attachment) = found.doing("get the attachment")? else {
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        };
        if plan::has_ticket(&attachment, name) {
            return Ok(ReconcileResult::Done);
        }
        let labels = format!("{VOLUME_LABEL}={volume}");
        let replicas = self.0.list(REPLICAS, NAMESPACE, &labels).await;
        let replicas = replicas.doing("list the replicas of a volume")?;
        let Some(node) = plan::home(&attachment, &replicas) else {
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        };
        let patch = plan::put(name, node);
        let written = self.0.merge(ATTACHMENTS, NAMESPACE, volume, &patch).await;
        written.map(|_| ReconcileResult::Done).doing("have the volume of a snapshot attached")
    }

    async fn drop_ticket(
        &self,
        name: &str,
        volume: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(ATTACHMENTS, NAMESPACE, volume).await;
        let there = found.doing("get the attachment")?;
        if there.is_none_or(|attachment| !plan::has_ticket(&attachment, name)) {
            return Ok(ReconcileResult::Done);
        }
        match self.0.merge(ATTACHMENTS, NAMESPACE, volume, &plan::drop(name)).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("give a volume back"),
        }
    }

    /// No record is left of the volume that it was of.
    async fn gone(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let all = self.0.list(ATTACHMENTS, NAMESPACE, "").await.doing("list attachments")?;
        for attachment in all.iter().filter(|own| plan::has_ticket(own, name)) {
            self.drop_ticket(name, object::name(attachment)).await?;
        }
        Ok(ReconcileResult::Done)
    }

    async fn sweep(&self, volume: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(ATTACHMENTS, NAMESPACE, volume).await;
        let Some(attachment) = found.doing("get the attachment")? else {
            return Ok(ReconcileResult::Done);
        };
        let names: Vec<String> = tickets(&attachment)
            .iter()
            .filter(|(_, ticket)| ticket.kind == plan::KIND)
            .filter_map(|(id, _)| plan::snapshot_of(id))
            .map(str::to_owned)
            .collect();
        for name in names {
            let found = self.0.get(SNAPSHOTS, NAMESPACE, &name).await.doing("get the snapshot")?;
            if found.is_none() {
                self.drop_ticket(&name, volume).await?;
            }
        }
        Ok(ReconcileResult::Done)
    }
}

/// A snapshot that the driver is asked for.
pub(super) fn wanted(name: &str, volume: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": super::API, "kind": "Snapshot",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": {VOLUME_LABEL: volume},
            "finalizers": [hci::longhorn::FINALIZER],
            "annotations": {"sheaf.io/requested-at": clock::now_rfc3339()},
        },
        "spec": {"volume": volume, "createSnapshot": true, "labels": labels},
    })
}
