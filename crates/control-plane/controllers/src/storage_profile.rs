//! CDI's StorageProfiles: one for each storage class, with what claims of the class can be.
//! Its spec is its user's; its status follows from that and from the class.

mod plan;

use std::sync::Arc;

use kube::Client;
use serde_json::{Value, json};
use virt::api::cdi::StorageProfile;

use crate::longhorn::volume_snapshot::SNAPSHOT_CLASSES;
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{CLASSES, Objects, Resource, is_refused};

pub(crate) use self::plan::{Set, sets};

pub(crate) const PROFILES: Resource =
    Resource::new("cdi.kubevirt.io", "v1beta1", "storageprofiles");

/// A profile has the name of its class.
#[derive(Debug, Default)]
pub(crate) struct Profiles;

impl EventMapper for Profiles {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, .. } if CLASSES.is(kind) || PROFILES.is(kind) => {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct ProfileReconciler(Objects);

impl ProfileReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for ProfileReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let class = self.0.get(CLASSES, "", name).await.doing("get the storage class")?;
        let found = self.0.get(PROFILES, "", name).await.doing("get the storage profile")?;
        let class = class.filter(|class| !object::is_deleting(class));
        let profile = match (class.as_ref(), found) {
            (None, None) => return Ok(ReconcileResult::Done),
            (None, Some(profile)) => {
                let deleted = self.0.delete(PROFILES, "", name, object::uid(&profile)).await;
                return deleted.map(|()| ReconcileResult::Done).doing("delete a storage profile");
            }
            (Some(_), Some(profile)) => profile,
            (Some(_), None) => match self.0.create(PROFILES, "", &empty(name)).await {
                Err(failure) if is_refused(&failure, 409) => return Ok(ReconcileResult::Done),
                made => made.doing("create a storage profile")?,
            },
        };
        let Some(class) = class else { return Ok(ReconcileResult::Done) };
        let snapshot_classes = self.0.list(SNAPSHOT_CLASSES, "", "").await;
        let snapshot_classes = snapshot_classes.doing("list snapshot classes")?;
        let read: StorageProfile = serde_json::from_value(profile.clone()).unwrap_or_default();
        let patch = json!({"status": plan::status(&class, &read.spec, &snapshot_classes)});
        if is_merged(&profile, &patch) {
            return Ok(ReconcileResult::Done);
        }
        let written = self.0.merge_status(PROFILES, "", object::name(&profile), &patch);
        written.await.map(|_| ReconcileResult::Done).doing("write the status of a storage profile")
    }
}

fn empty(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile",
        "metadata": {"name": name, "labels": {
            "app": "containerized-data-importer", "cdi.kubevirt.io": "",
            "app.kubernetes.io/component": "storage",
            "app.kubernetes.io/managed-by": "cdi-controller",
        }},
        "spec": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_profile_comes_and_goes_with_its_class() {
        let fake = Fake::new();
        let reconciler = ProfileReconciler::new(fake.client());
        let class = json!({"metadata": {"name": "fast"}, "provisioner": hci::DRIVER});
        fake.create("storage.k8s.io/storageclasses", "", class);
        let name: Arc<str> = "fast".into();
        reconciler.reconcile(&name).await.unwrap();
        let profile = || fake.get("cdi.kubevirt.io/storageprofiles", "", "fast");
        let status = profile().unwrap()["status"].clone();
        assert_eq!(status["storageClass"], "fast");
        assert_eq!(status["claimPropertySets"][0]["volumeMode"], "Block");
        let spec = json!({"spec": {"claimPropertySets": [
            {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
        ]}});
        fake.merge("cdi.kubevirt.io/storageprofiles", "", "fast", &spec);
        reconciler.reconcile(&name).await.unwrap();
        let sets = profile().unwrap()["status"]["claimPropertySets"].clone();
        assert_eq!(sets, spec["spec"]["claimPropertySets"]);
        fake.delete("storage.k8s.io/storageclasses", "", "fast", "Background");
        reconciler.reconcile(&name).await.unwrap();
        assert_eq!(profile(), None);
    }
}
