//! Binds claims and volumes to each other, releases them, and notifies provisioners where a
//! volume is to be made.
//!
//! Making, growing and removing the volumes themselves is the business of each node's agent.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use self::plan::{Notice, Wait};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::claim::PersistentVolumeFields;
use crate::resource::{CLAIMS, CLASSES, NODES, Objects, VOLUMES};

/// When no node can make the volume now: one may come without a claim being touched.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
const SOURCE: &str = "persistentvolume-controller";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimKey {
    Claim(ObjectKey),
    Volume(Arc<str>),
}

/// Every claim and every volume is checked when it changes, and a claim without a volume when
/// its class or any volume does.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimMapper(pub(crate) Dependents);

impl EventMapper for ClaimMapper {
    type Key = ClaimKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ClaimKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        if CLAIMS.is(kind) {
            vec![ClaimKey::Claim(ObjectKey::new(namespace, name))]
        } else if VOLUMES.is(kind) && *state != ObjectState::Gone {
            let waiting = self.0.all().into_iter().map(ClaimKey::Claim);
            waiting.chain([ClaimKey::Volume(Arc::clone(name))]).collect()
        } else if CLASSES.is(kind) {
            self.0.of(&ObjectKey::new("", name)).into_iter().map(ClaimKey::Claim).collect()
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct ClaimReconciler {
    objects: Objects,
    /// Claims without a volume, by the class that they name.
    waiting: Dependents,
    /// The last notice of each claim, so that it is written once.
    noticed: Mutex<BTreeMap<ObjectKey, Notice>>,
}

impl Reconciler for ClaimReconciler {
    type Key = ClaimKey;

    async fn reconcile(&self, work: &ClaimKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            ClaimKey::Claim(key) => self.claim(key).await,
            ClaimKey::Volume(name) => self.volume(name).await,
        }
    }
}

impl ClaimReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting, noticed: Mutex::default() }
    }

    async fn claim(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let Some(claim) = found.doing("get the claim")? else {
            self.forget(key);
            return self.gone(key).await;
        };
        if plan::is_bound(&claim) || object::is_deleting(&claim) {
            self.forget(key);
            return Ok(ReconcileResult::Done);
        }
        self.waiting.set(key, [ObjectKey::new("", plan::class_name(&claim))].into());
        let volumes = self.objects.list(VOLUMES, "", "").await.doing("list volumes")?;
        if let Some(volume) = plan::choose(&claim, &volumes) {
            return self.bind(&claim, volume).await;
        }
        self.wait(&claim).await
    }

    /// The volume first: a claim that says it is bound must find itself in the volume.
    async fn bind(&self, claim: &Value, volume: &Value) -> Result<ReconcileResult, ReconcileError> {
        let mut volume = volume.clone();
        if let Some(mut patch) = plan::bind_volume(claim, &volume) {
            patch["metadata"] = object::version(&volume).into();
            let written = self.objects.merge(VOLUMES, "", object::name(&volume), &patch).await;
            volume = written.doing("promise the volume")?;
        }
        let (namespace, name) = (object::namespace(claim), object::name(claim));
        let mut claim = claim.clone();
        if let Some(patch) = plan::bind_claim(&claim, &volume) {
            let written = self.objects.merge(CLAIMS, namespace, name, &patch).await;
            claim = written.doing("bind the claim")?;
        }
        if let Some(patch) = plan::bound_status(&claim, &volume) {
            let written = self.objects.merge_status(CLAIMS, namespace, name, &patch).await;
            claim = written.doing("say that the claim is bound")?;
        }
        self.update_phase(&volume, plan::volume_phase(&volume, Some(&claim))).await
    }

    async fn wait(&self, claim: &Value) -> Result<ReconcileResult, ReconcileError> {
        let class = self.objects.get(CLASSES, "", plan::class_name(claim)).await;
        let wait = plan::wait(claim, class.doing("get the storage class")?.as_ref());
        let (patch, notice) = match wait {
            Wait::Provisioner | Wait::Nothing => return Ok(ReconcileResult::Done),
            Wait::User(notice) => {
                self.notify(claim, notice).await;
                return Ok(ReconcileResult::Done);
            }
            Wait::Announcement { provisioner } => (plan::plain_announcement(&provisioner), None),
            Wait::Node { provisioner } => {
                let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
                let Some(node) = plan::node(&nodes) else {
                    return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                };
                let patch = plan::announcement(claim, node, &provisioner);
                (patch, Some(Notice::ExternalProvisioning { provisioner }))
            }
        };
        let (namespace, name) = (object::namespace(claim), object::name(claim));
        let written = self.objects.merge(CLAIMS, namespace, name, &patch).await;
        written.doing("announce the provisioner of a claim")?;
        if let Some(notice) = notice {
            self.notify(claim, notice).await;
        }
        Ok(ReconcileResult::Done)
    }

    /// Writes the event of a notice, once for as long as it is the last one of its claim.
    async fn notify(&self, claim: &Value, notice: Notice) {
        let before = self
            .noticed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(ObjectKey::of(claim), notice.clone());
        if before.as_ref() == Some(&notice) {
            return;
        }
        let regarding = Regarding {
            api_version: "v1",
            kind: "PersistentVolumeClaim",
            namespace: object::namespace(claim),
            name: object::name(claim),
            uid: object::uid(claim),
        };
        let tone = if notice.is_warning() { EventType::Warning } else { EventType::Normal };
        let (reason, message) = (notice.reason(), notice.to_string());
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }

    fn forget(&self, key: &ObjectKey) {
        self.waiting.forget(key);
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// A claim was deleted: volumes reserved for it are released.
    async fn gone(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let volumes = self.objects.list(VOLUMES, "", "").await.doing("list volumes")?;
        for volume in &volumes {
            let to = plan::promised_to(volume);
            if to.name == &*key.name && to.namespace == &*key.namespace {
                self.update_phase(volume, plan::volume_phase(volume, None)).await?;
            }
        }
        Ok(ReconcileResult::Done)
    }

    async fn volume(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let Some(volume) = self.objects.get(VOLUMES, "", name).await.doing("get the volume")?
        else {
            return Ok(ReconcileResult::Done);
        };
        let to = plan::promised_to(&volume);
        let key = ObjectKey::new(to.namespace, to.name);
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let claim = found.doing("get the claim")?;
        if let Some(claim) = &claim
            && !plan::is_bound(claim)
            && plan::is_for(&volume, claim)
        {
            return self.claim(&key).await;
        }
        self.update_phase(&volume, plan::volume_phase(&volume, claim.as_ref())).await
    }

    async fn update_phase(
        &self,
        volume: &Value,
        phase: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        if object::read::<PersistentVolumeFields<'_>>(volume).status.phase != phase {
            let patch = json!({"status": {"phase": phase}});
            let written = self.objects.merge_status(VOLUMES, "", object::name(volume), &patch);
            written.await.doing("say what a volume is")?;
        }
        Ok(ReconcileResult::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::object::text;

    #[tokio::test]
    async fn a_claim_and_a_volume_are_bound_and_released() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let binder = ClaimReconciler::new(fake.client(), Dependents::default());
        let class = json!({"metadata": {"name": "local"}, "provisioner": "sheaf.io/local"});
        fake.create("storage.k8s.io/storageclasses", "", class);
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        fake.create("/nodes", "", json!({"metadata": {"name": "n1"}, "status": ready}));
        let spec =
            json!({"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({"metadata": {"name": "c"}, "spec": spec});
        let uid = fake.create("/persistentvolumeclaims", "n", claim);
        let key = ObjectKey::new("n", "c");
        let claim = || fake.get("/persistentvolumeclaims", "n", "c").unwrap();
        let volume = || fake.get("/persistentvolumes", "", "v").unwrap();
        binder.claim(&key).await.unwrap();
        assert_eq!(object::annotation(&claim(), "volume.kubernetes.io/selected-node"), Some("n1"));

        let reference = json!({"namespace": "n", "name": "c", "uid": uid});
        let spec = json!({
            "storageClassName": "local", "capacity": {"storage": "1Gi"}, "claimRef": reference,
        });
        fake.create("/persistentvolumes", "", json!({"metadata": {"name": "v"}, "spec": spec}));
        binder.volume("v").await.unwrap();
        assert_eq!(text(&claim(), "/spec/volumeName"), "v");
        assert_eq!(text(&claim(), "/status/phase"), "Bound");
        assert_eq!(text(&volume(), "/status/phase"), "Bound");

        fake.delete("/persistentvolumeclaims", "n", "c", "Background");
        binder.claim(&key).await.unwrap();
        assert_eq!(text(&volume(), "/status/phase"), "Released");
    }
    #[tokio::test]
    async fn a_claim_with_an_unknown_class_gets_one_event_and_is_retried_with_the_class() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let storage = ClaimMapper::default();
        let binder = ClaimReconciler::new(fake.client(), storage.0.clone());
        let spec = json!({"storageClassName": "x", "resources": {"requests": {"storage": "1Gi"}}});
        fake.create(
            "/persistentvolumeclaims",
            "n",
            json!({"metadata": {"name": "c"}, "spec": spec}),
        );
        let key = ObjectKey::new("n", "c");
        for _ in 0..2 {
            assert_eq!(binder.claim(&key).await.unwrap(), ReconcileResult::Done);
        }
        assert_eq!(fake.names("/events").len(), 1);
        assert!(fake.any("/events", |event| {
            event["type"] == "Warning"
                && event["reason"] == "ProvisioningFailed"
                && event["message"] == "storageclass.storage.k8s.io \"x\" not found"
        }));
        assert_eq!(storage.0.of(&ObjectKey::new("", "x")), std::slice::from_ref(&key));
        let class = json!({"metadata": {"name": "x"}, "provisioner": hci::DRIVER});
        fake.create("storage.k8s.io/storageclasses", "", class);
        binder.claim(&key).await.unwrap();
        let claim = fake.get("/persistentvolumeclaims", "n", "c").unwrap();
        let provisioner = object::annotation(&claim, "volume.kubernetes.io/storage-provisioner");
        assert_eq!(provisioner, Some(hci::DRIVER));
    }
}
