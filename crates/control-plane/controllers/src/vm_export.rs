//! Exports of disks: VirtualMachineExports get a token, links and an end.
//!
//! The links lead to the API server, whose gateway checks the token and has the node of a disk
//! send its data.

mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use base::clock;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};
use uuid::Uuid;
use virt::api::export::VirtualMachineExport;

use self::plan::{ExportHold, ExportPhase, ExportSource};
use crate::installation::UploadProxy;
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_merged, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{
    CLAIMS, Objects, Resource, SECRETS, VM_CONTENTS, VM_SNAPSHOTS, VMIS, VMS, is_refused,
};

const EXPORTS: Resource = Resource::new("export.kubevirt.io", "v1", "virtualmachineexports");
/// Represents all instances of a namespace: any may use a claim.
const ANY: &str = "*";

/// Exports, and the objects that they were seen to wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exports(pub(crate) Dependents);

impl EventMapper for Exports {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if EXPORTS.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            vec![key]
        } else if VMIS.is(kind) {
            self.0.of(&ObjectKey::new(namespace, ANY))
        } else if CLAIMS.is(kind) || VMS.is(kind) || VM_SNAPSHOTS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct ExportReconciler {
    objects: Objects,
    waiting: Dependents,
    proxy: Option<UploadProxy>,
}

impl Reconciler for ExportReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(EXPORTS, &key.namespace, &key.name).await;
        let Some(object) = found.doing("get the export")? else { return Ok(ReconcileResult::Done) };
        if object::is_deleting(&object) {
            return Ok(ReconcileResult::Done);
        }
        let export: VirtualMachineExport =
            serde_json::from_value(object.clone()).unwrap_or_default();
        let left = plan::expiration(&export).map(|end| end.duration_since(clock::now()));
        if left.is_some_and(|left| !left.is_positive()) {
            let uid = object::uid(&object);
            let deleted = self.objects.delete(EXPORTS, &key.namespace, &key.name, uid).await;
            return deleted
                .map(|()| ReconcileResult::Done)
                .doing("delete an export that has expired");
        }
        self.make_token(&object, &export).await?;
        let phase = self.phase_of(key, &object, &export).await?;
        let patch = plan::status(&object, &export, &phase, self.proxy.as_ref(), clock::now());
        if !is_merged(&object, &patch) {
            let written =
                self.objects.merge_status(EXPORTS, &key.namespace, &key.name, &patch).await;
            written.doing("write the status of an export")?;
        }
        let left = left.and_then(|left| Duration::try_from(left).ok());
        Ok(left.map_or(ReconcileResult::Done, |left| {
            ReconcileResult::Again(left.max(Duration::from_millis(10)))
        }))
    }
}

impl ExportReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents, proxy: Option<UploadProxy>) -> Self {
        Self { objects: Objects(client), waiting, proxy }
    }

    /// An export that names a secret uses it; otherwise one is created.
    async fn make_token(
        &self,
        object: &Value,
        export: &VirtualMachineExport,
    ) -> Result<(), ReconcileError> {
        if export.spec.token_secret_ref.as_deref().is_some_and(|name| !name.is_empty()) {
            return Ok(());
        }
        let (namespace, name) = (object::namespace(object), plan::token_secret(export));
        let found = self.objects.get(SECRETS, namespace, &name).await;
        if found.doing("get the token of an export")?.is_some() {
            return Ok(());
        }
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": name, "namespace": namespace,
                "ownerReferences": [object::controlled_by(object, plan::API, plan::KIND)],
            },
            "data": {"token": STANDARD.encode(token)},
        });
        match self.objects.create(SECRETS, namespace, &secret).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            made => made.map(drop).doing("create the token of an export"),
        }
    }

    async fn phase_of(
        &self,
        key: &ObjectKey,
        object: &Value,
        export: &VirtualMachineExport,
    ) -> Result<ExportPhase, ReconcileError> {
        let namespace = &*key.namespace;
        let Some(source) = plan::source(export) else { return Ok(ExportPhase::Empty) };
        let here = |name: &str| ObjectKey::new(namespace, name);
        let mut needs: BTreeSet<ObjectKey> = [here(ANY), here(&export.spec.source.name)].into();
        self.waiting.set(key, needs.clone());
        let missing = |kind, name: &str| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            ExportPhase::Held(ExportHold::Missing { kind, namespace, name })
        };
        let claims = match &source {
            ExportSource::Claim(name) => vec![name.clone()],
            ExportSource::Machine(name) => {
                let found = self.objects.get(VMS, namespace, name).await;
                match found.doing("get the machine of an export")? {
                    Some(machine) => plan::claims_of(&machine),
                    None => return Ok(missing("VirtualMachine", name)),
                }
            }
            ExportSource::Snapshot(name) => {
                let found = self.objects.get(VM_SNAPSHOTS, namespace, name).await;
                let Some(snapshot) = found.doing("get the snapshot of an export")? else {
                    return Ok(missing("VirtualMachineSnapshot", name));
                };
                if !object::is_true(&snapshot, "/status/readyToUse") {
                    return Ok(ExportPhase::Held(ExportHold::Snapshot { name: name.clone() }));
                }
                self.snapshot_claims(object, &snapshot).await?
            }
        };
        needs.extend(claims.iter().map(|name| here(name)));
        self.waiting.set(key, needs);
        let mut found = Vec::new();
        for name in claims {
            let claim = self.objects.get(CLAIMS, namespace, &name).await;
            let claim = claim.doing("get a claim of an export")?;
            if claim.is_none() && matches!(source, ExportSource::Claim(_)) {
                return Ok(missing("PersistentVolumeClaim", &name));
            }
            found.push((name, claim));
        }
        let vmis = self.objects.list(VMIS, namespace, "").await.doing("list instances")?;
        Ok(plan::phase(&found, &vmis))
    }

    /// Makes the claims of a snapshot where they are missing, and names all.
    async fn snapshot_claims(
        &self,
        export: &Value,
        snapshot: &Value,
    ) -> Result<Vec<String>, ReconcileError> {
        let namespace = object::namespace(export);
        let content = text(snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.objects.get(VM_CONTENTS, namespace, content).await;
        let content = content.doing("get the content of a snapshot")?.unwrap_or_default();
        let mut names = Vec::new();
        for claim in plan::snapshot_claims(export, &content) {
            let name = object::name(&claim).to_owned();
            let found = self.objects.get(CLAIMS, namespace, &name).await;
            if found.doing("get a claim of an export")?.is_none() {
                match self.objects.create(CLAIMS, namespace, &claim).await {
                    Err(failure) if is_refused(&failure, 409) => {}
                    made => drop(made.doing("create a claim for an export")?),
                }
            }
            names.push(name);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const KIND: &str = "export.kubevirt.io/virtualmachineexports";

    #[tokio::test]
    async fn an_export_of_a_claim_gets_a_token_and_links_and_waits_for_its_user() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let exports = Exports::default();
        let proxy = UploadProxy { url: "https://h".into(), ca: "PEM".into() };
        let reconciler = ExportReconciler::new(fake.client(), exports.0.clone(), Some(proxy));
        let source = json!({"kind": "PersistentVolumeClaim", "name": "c"});
        let export = json!({"metadata": {"name": "e"}, "spec": {"source": source}});
        fake.create(KIND, "n", export);
        let created = json!({"metadata": {"creationTimestamp": clock::now_rfc3339()}});
        fake.merge(KIND, "n", "e", &created);
        let key = ObjectKey::new("n", "e");
        let status = || fake.get(KIND, "n", "e").unwrap()["status"].clone();
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(status()["phase"], "Pending");
        assert_eq!(exports.0.of(&ObjectKey::new("n", "c")), std::slice::from_ref(&key));
        assert!(fake.get("/secrets", "n", "export-token-e").is_some());
        let claim = json!({"metadata": {"name": "c"}, "status": {"phase": "Bound"}});
        fake.create("/persistentvolumeclaims", "n", claim);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(status()["phase"], "Ready");
        assert_eq!(status()["links"]["external"]["volumes"][0]["name"], "c");
        let spec = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]});
        let vmi = json!({"metadata": {"name": "m"}, "spec": spec, "status": {"phase": "Running"}});
        fake.create("kubevirt.io/virtualmachineinstances", "n", vmi);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(status()["phase"], "Pending");
        assert_eq!(status()["links"], Value::Null, "a claim in use cannot be downloaded");
        let old = json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}});
        fake.merge(KIND, "n", "e", &old);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(fake.get(KIND, "n", "e"), None, "its time is over");
    }
}
