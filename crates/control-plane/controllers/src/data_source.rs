//! CDI's DataSources: their condition says whether what they point at can be copied now.

use base::clock;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::data_volume::record::DataVolumeFields;
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::volume_snapshot::VOLUME_SNAPSHOTS;
use crate::longhorn::volume_snapshot::record::VolumeSnapshotFields;
use crate::object::{self, is_merged, read};
use crate::populate;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::fields;
use crate::resource::{CLAIMS, DATA_SOURCES, Objects, Resource, is_refused};

/// DataSources, and what they point at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources(pub(crate) Dependents);

impl EventMapper for Sources {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if DATA_SOURCES.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            vec![key]
        } else if CLAIMS.is(kind) || VOLUME_SNAPSHOTS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct SourceReconciler {
    objects: Objects,
    pointed: Dependents,
}

impl Reconciler for SourceReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(DATA_SOURCES, &key.namespace, &key.name).await;
        let Some(source) = found.doing("get the data source")? else {
            return Ok(ReconcileResult::Done);
        };
        let target = target(&source);
        let needs = target.iter().map(|(_, namespace, name)| ObjectKey::new(namespace, name));
        self.pointed.set(key, needs.collect());
        let object = match target {
            Some((resource, namespace, name)) => {
                let object = self.objects.get(resource, namespace, name).await;
                object.doing("get what a data source points at")?
            }
            None => None,
        };
        let patch = status(&source, target.map(|(resource, ..)| resource), object, clock::now());
        if is_merged(&source, &patch) {
            return Ok(ReconcileResult::Done);
        }
        // The kind has no status subresource.
        match self.objects.merge(DATA_SOURCES, &key.namespace, &key.name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => {
                written.map(|_| ReconcileResult::Done).doing("write the status of a data source")
            }
        }
    }
}

impl SourceReconciler {
    pub(crate) fn new(client: Client, pointed: Dependents) -> Self {
        Self { objects: Objects(client), pointed }
    }
}

/// The claim or snapshot that a DataSource points at.
fn target(source: &Value) -> Option<(Resource, &str, &str)> {
    let at = read::<DataVolumeFields<'_>>(source).spec.source?;
    let claim = at.pvc.map(|own| (CLAIMS, own));
    let (resource, own) = claim.or_else(|| Some((VOLUME_SNAPSHOTS, at.snapshot?)))?;
    let there = if own.namespace.is_empty() { object::namespace(source) } else { own.namespace };
    Some((resource, there, own.name))
}

fields! {
    /// A DataSource whose source is copied to its status.
    struct CopiedSourceFields {
        spec: CopiedSourceSpec,
    }

    struct CopiedSourceSpec {
        source: Value,
    }
}

fn is_ready(snapshot: &Value) -> bool {
    read::<VolumeSnapshotFields<'_>>(snapshot).status.ready_to_use
}

fn status(
    source: &Value,
    resource: Option<Resource>,
    object: Option<Value>,
    now: Timestamp,
) -> Value {
    let ready = match (resource, object) {
        (None, _) => ("False", "NoSource", "No source"),
        (Some(CLAIMS), None) => ("False", "NotFound", "PVC not found"),
        (Some(_), None) => ("False", "NotFound", "Snapshot not found"),
        (Some(CLAIMS), Some(claim)) if !populate::is_populated(&claim) => {
            ("False", "ImportInProgress", "Import is in progress")
        }
        (Some(VOLUME_SNAPSHOTS), Some(snapshot)) if !is_ready(&snapshot) => {
            ("False", "SnapshotNotReady", "Snapshot phase is not ready")
        }
        _ => ("True", "Ready", "DataSource is ready to be consumed"),
    };
    let (status, reason, message) = ready;
    let mut conditions = condition::of(source);
    condition::set(&mut conditions, &Condition::new("Ready", status).because(reason, message), now);
    let source = read::<CopiedSourceFields>(source).spec.source;
    json!({"status": {"source": source, "conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::object::text;

    #[tokio::test]
    async fn a_data_source_is_ready_when_its_claim_is() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let sources = Sources::default();
        let reconciler = SourceReconciler::new(fake.client(), sources.0.clone());
        let spec = json!({"source": {"pvc": {"name": "c", "namespace": "n"}}});
        let source = json!({"metadata": {"name": "d"}, "spec": spec});
        fake.create("cdi.kubevirt.io/datasources", "n", source);
        let key = ObjectKey::new("n", "d");
        let reason = || {
            let found = fake.get("cdi.kubevirt.io/datasources", "n", "d").unwrap();
            text(&found["status"]["conditions"][0], "/reason").to_owned()
        };
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(reason(), "NotFound");
        assert_eq!(sources.0.of(&ObjectKey::new("n", "c")), std::slice::from_ref(&key));
        let claim =
            json!({"metadata": {"name": "c", "annotations": {populate::UPLOAD_TARGET: ""}}});
        fake.create("/persistentvolumeclaims", "n", claim);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(reason(), "ImportInProgress");
        let filled = json!({"metadata": {"annotations": {populate::POD_PHASE: "Succeeded"}}});
        fake.merge("/persistentvolumeclaims", "n", "c", &filled);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(reason(), "Ready");
    }
}
