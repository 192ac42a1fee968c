//! Data volumes: claims with content. Each gets its claim; the agent of the claim's node fills it,
//! and its status is copied here.

mod plan;
pub(crate) mod record;
mod source;

use std::collections::BTreeSet;

use base::clock;
use kube::Client;
use serde_json::Value;
use virt::api::cdi::StorageProfile;
use virt::reason::FillFailure;

use self::plan::DataVolumeInput;

pub(crate) use self::plan::annotations;
use self::record::DataVolumeFields;
pub(crate) use self::source::{CloneHold, Copied, DataVolumeSource, Start, source, start};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::volume_snapshot::VOLUME_SNAPSHOTS;
use crate::object::{self, is_merged, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::claim::{ClaimFields, StorageClassFields};
use crate::record::condition::condition;
use crate::resource::{CLAIMS, CLASSES, DATA_SOURCES, DATA_VOLUMES, Objects, is_refused};
use crate::storage_profile::{self, PROFILES};

const SOURCE: &str = "datavolume-controller";

/// A data volume and its claim have the same name. One without a claim is checked again when
/// its source changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filled(pub(crate) Dependents);

impl EventMapper for Filled {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if DATA_VOLUMES.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            vec![key]
        } else if CLAIMS.is(kind) {
            self.0.of(&key).into_iter().chain([key]).collect()
        } else if VOLUME_SNAPSHOTS.is(kind) || DATA_SOURCES.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct DataVolumeReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for DataVolumeReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(DATA_VOLUMES, &key.namespace, &key.name).await;
        let Some(dv) = found.doing("get the data volume")? else {
            return Ok(ReconcileResult::Done);
        };
        if object::is_deleting(&dv) {
            return Ok(ReconcileResult::Done);
        }
        let source = self.source(key, &dv).await?;
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let mut claim = found.doing("get the claim")?;
        let mut hold = None;
        if claim.is_some() {
            self.waiting.forget(key);
        } else if !matches!(source, DataVolumeSource::Unsupported(_)) {
            (claim, hold) = self.make_claim(&dv, &source).await?;
        }
        self.record_event(&dv, &source, claim.as_ref(), hold.as_ref()).await
    }
}

impl DataVolumeReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    /// Also notes what the data volume depends on, before that is read.
    async fn source(
        &self,
        key: &ObjectKey,
        dv: &Value,
    ) -> Result<DataVolumeSource, ReconcileError> {
        let named = read::<DataVolumeFields<'_>>(dv).spec.source_ref;
        let (name, there) = (named.name, named.namespace);
        let namespace = if there.is_empty() { object::namespace(dv) } else { there };
        let mut needs = BTreeSet::new();
        if !name.is_empty() {
            needs.insert(ObjectKey::new(namespace, name));
            self.waiting.set(key, needs.clone());
        }
        let found = self.objects.get(DATA_SOURCES, namespace, name).await;
        let source = self::source(dv, found.doing("get the data source")?.as_ref());
        if let Some((_, namespace, name)) = source.copied() {
            needs.insert(ObjectKey::new(namespace, name));
        }
        self.waiting.set(key, needs);
        Ok(source)
    }

    async fn make_claim(
        &self,
        dv: &Value,
        source: &DataVolumeSource,
    ) -> Result<(Option<Value>, Option<CloneHold>), ReconcileError> {
        let mut wanted = plan::claim(dv, source);
        let class = self.class(&wanted).await?;
        if let Some(class) = &class {
            let profile = self.objects.get(PROFILES, "", object::name(class)).await;
            let profile = profile.doing("get the storage profile")?.unwrap_or_default();
            let profile: StorageProfile = serde_json::from_value(profile).unwrap_or_default();
            plan::default_modes(&mut wanted, dv, &storage_profile::sets(class, &profile.spec));
        } else {
            plan::default_modes(&mut wanted, dv, &[]);
        }
        if let Some(hold) = source::unauthorized(dv, source) {
            return Ok((None, Some(hold)));
        }
        match self.begin(source, class.as_ref(), &mut wanted).await? {
            Start::Hold(hold) => return Ok((None, Some(hold))),
            Start::Linked => plan::link(&mut wanted, source),
            Start::Plain => {}
        }
        match self.objects.create(CLAIMS, object::namespace(dv), &wanted).await {
            Ok(claim) => Ok((Some(claim), None)),
            // Made a moment ago; the touch of it brings us back.
            Err(failure) if is_refused(&failure, 409) => Ok((None, None)),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                let message = status.message.clone();
                self.update_status(dv, EventType::Warning, FillFailure::Claim.as_str(), message)
                    .await;
                Ok((None, None))
            }
            Err(failure) => Err(failure).doing("create the claim"),
        }
    }

    /// The class that a claim will have.
    async fn class(&self, wanted: &Value) -> Result<Option<Value>, ReconcileError> {
        let classes = self.objects.list(CLASSES, "", "").await.doing("list storage classes")?;
        Ok(plan::class(wanted, &classes).cloned())
    }

    /// How the claim begins, and how large it is if it does not say so itself.
    async fn begin(
        &self,
        source: &DataVolumeSource,
        class: Option<&Value>,
        wanted: &mut Value,
    ) -> Result<Start, ReconcileError> {
        let resource = match source {
            DataVolumeSource::Snapshot { .. } => VOLUME_SNAPSHOTS,
            _ => CLAIMS,
        };
        let Some((_, namespace, name)) = source.copied() else {
            return Ok(start(source, Copied::default()));
        };
        let found = self.objects.get(resource, namespace, name).await;
        let found = found.doing("get what is copied")?;
        let volume = self.objects.volume_of(found.as_ref()).await.doing("get a volume")?;
        let copied = Copied { class, object: found.as_ref(), volume: volume.as_ref() };
        let start = start(source, copied);
        if let Some(found) = &found {
            plan::default_size(wanted, source, found);
        }
        Ok(start)
    }

    async fn record_event(
        &self,
        dv: &Value,
        source: &DataVolumeSource,
        claim: Option<&Value>,
        hold: Option<&CloneHold>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let class =
            claim.map_or("", |claim| read::<ClaimFields<'_>>(claim).spec.storage_class_name);
        let class = self.objects.get(CLASSES, "", class).await.doing("get the storage class")?;
        let waits_for_consumer =
            class.is_some_and(|class| read::<StorageClassFields<'_>>(&class).waits_for_consumer());
        let seen = DataVolumeInput { dv, source, claim, hold, waits_for_consumer };
        let patch = plan::status(seen, clock::now());
        if is_merged(dv, &patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(dv), object::name(dv));
        let written = self.objects.merge_status(DATA_VOLUMES, namespace, name, &patch).await;
        written.doing("say how a data volume is")?;
        let phase = |own| read::<DataVolumeFields<'_>>(own).status.phase;
        let (before, now) = (phase(dv), phase(&patch));
        if before != now {
            self.update_phase(dv, now).await;
        }
        if let Some(hold) = hold {
            let known = condition(dv, "Running");
            let message = hold.to_string();
            if known.is_none_or(|known| known.message != message) {
                self.update_status(dv, EventType::Warning, hold.reason(), message).await;
            }
        }
        Ok(ReconcileResult::Done)
    }

    async fn update_phase(&self, dv: &Value, phase: &str) {
        let own = object::name(dv);
        let (tone, message) = match phase {
            "Succeeded" => (EventType::Normal, format!("Successfully filled PVC {own}")),
            "Failed" => (EventType::Warning, format!("Failed to fill PVC {own}")),
            "ImportInProgress" => (EventType::Normal, format!("Import into {own} in progress")),
            "CloneInProgress" => (EventType::Normal, format!("Cloning into {own} in progress")),
            "UploadReady" => (EventType::Normal, format!("Upload into {own} ready")),
            _ => return,
        };
        self.update_status(dv, tone, phase, message).await;
    }

    async fn update_status(&self, dv: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "cdi.kubevirt.io/v1beta1",
            kind: "DataVolume",
            namespace: object::namespace(dv),
            name: object::name(dv),
            uid: object::uid(dv),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;
    use crate::object::text;

    #[tokio::test]
    async fn a_data_volume_gets_its_claim_and_repeats_its_state() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let filler = DataVolumeReconciler::new(fake.client(), Dependents::default());
        let spec = json!({
            "source": {"http": {"url": "http://x"}},
            "pvc": {"accessModes": ["ReadWriteOnce"]},
        });
        fake.create(
            "cdi.kubevirt.io/datavolumes",
            "n",
            json!({"metadata": {"name": "d"}, "spec": spec}),
        );
        let key = ObjectKey::new("n", "d");
        filler.reconcile(&key).await.unwrap();
        let phase = || {
            let dv = fake.get("cdi.kubevirt.io/datavolumes", "n", "d").unwrap();
            text(&dv, "/status/phase").to_owned()
        };
        assert!(fake.get("/persistentvolumeclaims", "n", "d").is_some());
        assert_eq!(phase(), "Pending");
        let filled = json!({
            "metadata": {"annotations": {crate::populate::POD_PHASE: "Succeeded"}}, "status": {"phase": "Bound"},
        });
        fake.merge("/persistentvolumeclaims", "n", "d", &filled);
        filler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), "Succeeded");
    }

    #[tokio::test]
    async fn a_copy_waits_for_its_source_and_is_made_when_that_appears() {
        let fake = Fake::new();
        for name in ["n", "m"] {
            fake.create("/namespaces", "", json!({"metadata": {"name": name}}));
        }
        let class = json!({"metadata": {"name": "longhorn"}, "provisioner": hci::DRIVER});
        fake.create("storage.k8s.io/storageclasses", "", class);
        let filled = Filled::default();
        let filler = DataVolumeReconciler::new(fake.client(), filled.0.clone());
        let spec = json!({
            "source": {"pvc": {"namespace": "m", "name": "from"}},
            "storage": {"storageClassName": "longhorn"},
        });
        let annotations = json!({crate::populate::AUTHORIZED: "pvc/m/from"});
        let dv = json!({"metadata": {"name": "d", "annotations": annotations}, "spec": spec});
        fake.create("cdi.kubevirt.io/datavolumes", "n", dv);
        let key = ObjectKey::new("n", "d");
        for _ in 0..2 {
            filler.reconcile(&key).await.unwrap();
        }
        assert!(fake.get("/persistentvolumeclaims", "n", "d").is_none());
        let is_reported = |event: &Value| event["reason"] == "CloneWithoutSource";
        assert!(fake.any("/events", is_reported) && fake.names("/events").len() == 1);
        assert_eq!(filled.0.of(&ObjectKey::new("m", "from")), std::slice::from_ref(&key));

        let csi = json!({"driver": hci::DRIVER, "volumeHandle": "v"});
        fake.create(
            "/persistentvolumes",
            "",
            json!({"metadata": {"name": "v"}, "spec": {"csi": csi}}),
        );
        let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
        let from =
            json!({"metadata": {"name": "from"}, "spec": {"volumeName": "v"}, "status": status});
        fake.create("/persistentvolumeclaims", "m", from);
        fake.bind("m", "from", "v");
        filler.reconcile(&key).await.unwrap();
        let claim = fake.get("/persistentvolumeclaims", "n", "d").unwrap();
        assert_eq!(object::annotation(&claim, crate::populate::DRIVER_CLONE), Some("pvc/m/from"));
        assert_eq!(text(&claim, "/spec/resources/requests/storage"), "2Gi");
    }
}
