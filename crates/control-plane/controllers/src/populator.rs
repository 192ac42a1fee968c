//! Claims that name one of CDI's sources in `dataSourceRef`: VolumeImportSource,
//! VolumeUploadSource and VolumeCloneSource.
//!
//! The spec of the source is written to the claim in CDI's annotations, once; from then on the
//! claim is provisioned and filled as that of a DataVolume. Until then no volume is provisioned.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use kube::Client;
use serde_json::{Map, Value, json};

use crate::data_volume::{self, CloneHold, Copied, DataVolumeSource, Start};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::volume_snapshot::VOLUME_SNAPSHOTS;
use crate::object::{self, annotation, read};
use crate::populate::{self, DRIVER_CLONE, POD_PHASE, POPULATOR};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::claim::ClaimFields;
use crate::record::fields;
use crate::resource::{CLAIMS, CLASSES, Objects, Resource};

const GROUP: &str = "cdi.kubevirt.io";
const IMPORTS: Resource = Resource::new(GROUP, "v1beta1", "volumeimportsources");
const UPLOADS: Resource = Resource::new(GROUP, "v1beta1", "volumeuploadsources");
const CLONES: Resource = Resource::new(GROUP, "v1beta1", "volumeclonesources");
const SOURCE: &str = "populator-controller";

fields! {
    /// One of CDI's sources.
    struct PopulatorFields<'a> {
        spec: PopulatorSpec<'a>,
    }

    struct PopulatorSpec<'a> {
        content_type: &'a str,
        source: ClonedObject<'a>,
    }

    /// The object that a VolumeCloneSource copies.
    struct ClonedObject<'a> {
        kind: &'a str,
        name: &'a str,
    }
}

/// Claims, and the objects that they were seen to wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Populated(pub(crate) Dependents);

impl EventMapper for Populated {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if CLAIMS.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return self.0.of(&key);
            }
            return self.0.of(&key).into_iter().chain([key]).collect();
        }
        let sources = [IMPORTS, UPLOADS, CLONES, VOLUME_SNAPSHOTS];
        if sources.iter().any(|own| own.is(kind)) { self.0.of(&key) } else { Vec::new() }
    }
}

pub(crate) struct PopulatorReconciler {
    objects: Objects,
    waiting: Dependents,
    /// The last event of each claim, so that it is recorded once.
    reported: Mutex<BTreeMap<ObjectKey, String>>,
}

impl Reconciler for PopulatorReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let claim = found.doing("get the claim")?.filter(is_unpopulated);
        let Some((claim, kind, name)) = claim.as_ref().and_then(reference) else {
            self.waiting.forget(key);
            self.reported.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(ReconcileResult::Done);
        };
        self.waiting.set(key, [ObjectKey::new(&key.namespace, name)].into());
        let found = self.objects.get(kind.resource(), &key.namespace, name).await;
        let Some(named) = found.doing("get the source of a claim")? else {
            let missing = CloneHold::Missing { kind: kind.name(), name: name.to_owned() };
            self.complain(key, claim, &missing).await;
            return Ok(ReconcileResult::Done);
        };
        let source = kind.source(&named, &key.namespace);
        match self.begin(key, claim, name, &source).await? {
            Start::Hold(hold) => {
                self.complain(key, claim, &hold).await;
                Ok(ReconcileResult::Done)
            }
            start => {
                let annotations = annotations(kind, &named, &source, &start);
                let patch = json!({
                    "metadata": {"uid": object::uid(claim), "annotations": annotations},
                });
                let written = self.objects.merge(CLAIMS, &key.namespace, &key.name, &patch).await;
                written.map(|_| ReconcileResult::Done).doing("say what is to be on a claim")
            }
        }
    }
}

impl PopulatorReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting, reported: Mutex::default() }
    }

    async fn begin(
        &self,
        key: &ObjectKey,
        claim: &Value,
        name: &str,
        source: &DataVolumeSource,
    ) -> Result<Start, ReconcileError> {
        let Some((_, _, from)) = source.copied() else {
            return Ok(data_volume::start(source, Copied::default()));
        };
        let here = |name: &str| ObjectKey::new(&key.namespace, name);
        self.waiting.set(key, [here(name), here(from)].into());
        let resource = match source {
            DataVolumeSource::Snapshot { .. } => VOLUME_SNAPSHOTS,
            _ => CLAIMS,
        };
        let object = self.objects.get(resource, &key.namespace, from).await;
        let object = object.doing("get what is copied")?;
        let volume = self.objects.volume_of(object.as_ref()).await.doing("get a volume")?;
        let class = read::<ClaimFields<'_>>(claim).spec.storage_class_name;
        let class = self.objects.get(CLASSES, "", class).await.doing("get the storage class")?;
        let copied =
            Copied { class: class.as_ref(), object: object.as_ref(), volume: volume.as_ref() };
        Ok(data_volume::start(source, copied))
    }

    async fn complain(&self, key: &ObjectKey, claim: &Value, hold: &CloneHold) {
        let message = hold.to_string();
        let before = self
            .reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), message.clone());
        if before.as_ref() == Some(&message) {
            return;
        }
        let regarding = Regarding {
            api_version: "v1",
            kind: "PersistentVolumeClaim",
            namespace: &key.namespace,
            name: &key.name,
            uid: object::uid(claim),
        };
        event::record(
            &self.objects.0,
            SOURCE,
            &regarding,
            EventType::Warning,
            hold.reason(),
            message,
        )
        .await;
    }
}

/// The kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PopulatorKind {
    Import,
    Upload,
    Clone,
}

impl PopulatorKind {
    fn of(name: &str) -> Option<Self> {
        [Self::Import, Self::Upload, Self::Clone].into_iter().find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Import => "VolumeImportSource",
            Self::Upload => "VolumeUploadSource",
            Self::Clone => "VolumeCloneSource",
        }
    }

    fn resource(self) -> Resource {
        match self {
            Self::Import => IMPORTS,
            Self::Upload => UPLOADS,
            Self::Clone => CLONES,
        }
    }

    fn source(self, named: &Value, namespace: &str) -> DataVolumeSource {
        let source = read::<PopulatorFields<'_>>(named).spec.source;
        let (namespace, name) = (namespace.to_owned(), source.name.to_owned());
        match (self, source.kind) {
            (Self::Import, _) => data_volume::source(named, None),
            (Self::Upload, _) => DataVolumeSource::Upload,
            (Self::Clone, "VolumeSnapshot") => DataVolumeSource::Snapshot { namespace, name },
            (Self::Clone, _) => DataVolumeSource::Clone { namespace, name },
        }
    }
}

/// Whether the contents of a claim are not specified yet.
fn is_unpopulated(claim: &Value) -> bool {
    populate::waits_for_populator(claim)
        && read::<ClaimFields<'_>>(claim).spec.volume_name.is_empty()
        && !object::is_deleting(claim)
        && annotation(claim, POPULATOR).is_none()
}

/// The source that a claim names.
fn reference(claim: &Value) -> Option<(&Value, PopulatorKind, &str)> {
    let source = read::<ClaimFields<'_>>(claim).spec.data_source_ref;
    Some((claim, PopulatorKind::of(source.kind)?, source.name))
}

fn annotations(
    kind: PopulatorKind,
    named: &Value,
    source: &DataVolumeSource,
    start: &Start,
) -> Map<String, Value> {
    let mut annotations =
        data_volume::annotations(read::<PopulatorFields<'_>>(named).spec.content_type, source);
    annotations.insert(POPULATOR.into(), kind.name().into());
    if let (Start::Linked, Some((kind, namespace, name))) = (start, source.copied()) {
        annotations.remove(populate::CLONE_REQUEST);
        annotations.insert(DRIVER_CLONE.into(), format!("{kind}/{namespace}/{name}").into());
        annotations.insert(POD_PHASE.into(), "Succeeded".into());
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn cluster(kind: &str) -> (Fake, PopulatorReconciler, Populated) {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let class = json!({"metadata": {"name": "l"}, "provisioner": hci::DRIVER});
        fake.create("storage.k8s.io/storageclasses", "", class);
        let reference = json!({"apiGroup": GROUP, "kind": kind, "name": "s"});
        let spec = json!({"storageClassName": "l", "dataSourceRef": reference});
        let claim = json!({"metadata": {"name": "c"}, "spec": spec});
        fake.create("/persistentvolumeclaims", "n", claim);
        let populated = Populated::default();
        let reconciler = PopulatorReconciler::new(fake.client(), populated.0.clone());
        (fake, reconciler, populated)
    }

    #[tokio::test]
    async fn a_claim_waits_for_its_source_and_gets_what_that_says() {
        let (fake, reconciler, populated) = cluster("VolumeImportSource");
        let key = ObjectKey::new("n", "c");
        for _ in 0..2 {
            reconciler.reconcile(&key).await.unwrap();
        }
        assert_eq!(fake.names("/events").len(), 1);
        assert_eq!(populated.0.of(&ObjectKey::new("n", "s")), std::slice::from_ref(&key));
        let spec = json!({"source": {"http": {"url": "http://x/i"}}});
        let source = json!({"metadata": {"name": "s"}, "spec": spec});
        fake.create("cdi.kubevirt.io/volumeimportsources", "n", source);
        reconciler.reconcile(&key).await.unwrap();
        let claim = fake.get("/persistentvolumeclaims", "n", "c").unwrap();
        let endpoint = annotation(&claim, "cdi.kubevirt.io/storage.import.endpoint");
        assert_eq!(endpoint, Some("http://x/i"));
        assert!(!populate::is_populated(&claim) && annotation(&claim, POPULATOR).is_some());
    }

    #[tokio::test]
    async fn a_copy_on_the_driver_is_left_to_it() {
        let (fake, reconciler, _) = cluster("VolumeCloneSource");
        let spec = json!({"source": {"kind": "PersistentVolumeClaim", "name": "from"}});
        let source = json!({"metadata": {"name": "s"}, "spec": spec});
        fake.create("cdi.kubevirt.io/volumeclonesources", "n", source);
        let csi = json!({"driver": hci::DRIVER, "volumeHandle": "v"});
        let volume = json!({"metadata": {"name": "v"}, "spec": {"csi": csi}});
        fake.create("/persistentvolumes", "", volume);
        let from = json!({"metadata": {"name": "from"}, "spec": {"volumeName": "v"},
            "status": {"phase": "Bound"}});
        fake.create("/persistentvolumeclaims", "n", from);
        fake.bind("n", "from", "v");
        reconciler.reconcile(&ObjectKey::new("n", "c")).await.unwrap();
        let claim = fake.get("/persistentvolumeclaims", "n", "c").unwrap();
        assert_eq!(annotation(&claim, DRIVER_CLONE), Some("pvc/n/from"));
        assert!(populate::is_populated(&claim));
    }
}
