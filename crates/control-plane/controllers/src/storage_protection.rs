//! Holding back the deletion of claims, volumes and attributes of volumes that are in use.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{ATTRIBUTES_CLASSES, CLAIMS, Objects, VMIS, VOLUMES};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProtectedKey {
    Claim { namespace: Arc<str>, name: Arc<str> },
    Volume { name: Arc<str> },
    Attributes { name: Arc<str> },
}

/// Remembers who waits to be unused.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By namespace.
    claims: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    attributes: BTreeSet<Arc<str>>,
}

impl EventMapper for Waiting {
    type Key = ProtectedKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ProtectedKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            let claims = self.claims.keys().flat_map(|namespace| self.claims(namespace));
            return claims.chain(self.attributes()).collect();
        };
        let mut keys = Vec::new();
        let there = *state != ObjectState::Gone;
        if CLAIMS.is(kind) {
            self.note_claim(namespace, name, *state);
            let key =
                ProtectedKey::Claim { namespace: Arc::clone(namespace), name: Arc::clone(name) };
            keys.extend(there.then_some(key));
            keys.extend(self.attributes());
        } else if VOLUMES.is(kind) {
            keys.extend(there.then(|| ProtectedKey::Volume { name: Arc::clone(name) }));
            keys.extend(self.attributes());
        } else if ATTRIBUTES_CLASSES.is(kind) {
            match state {
                ObjectState::Deleting => self.attributes.insert(Arc::clone(name)),
                ObjectState::Live | ObjectState::Gone => self.attributes.remove(name),
            };
            keys.extend(there.then(|| ProtectedKey::Attributes { name: Arc::clone(name) }));
        } else if kind.is("", "pods") || VMIS.is(kind) {
            keys.extend(self.claims(namespace));
        }
        keys
    }
}

impl Waiting {
    fn note_claim(&mut self, namespace: &Arc<str>, name: &Arc<str>, state: ObjectState) {
        if state == ObjectState::Deleting {
            self.claims.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name));
        } else if let Some(claims) = self.claims.get_mut(namespace) {
            claims.remove(name);
            if claims.is_empty() {
                self.claims.remove(namespace);
            }
        }
    }

    fn claims(&self, namespace: &Arc<str>) -> Vec<ProtectedKey> {
        let claims = self.claims.get(namespace).into_iter().flatten();
        let key = |name: &Arc<str>| ProtectedKey::Claim {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        claims.map(key).collect()
    }

    fn attributes(&self) -> impl Iterator<Item = ProtectedKey> {
        self.attributes.iter().map(|name| ProtectedKey::Attributes { name: Arc::clone(name) })
    }
}

pub(crate) struct StorageProtectionReconciler {
    pub(crate) client: Client,
}

impl Reconciler for StorageProtectionReconciler {
    type Key = ProtectedKey;

    async fn reconcile(&self, key: &ProtectedKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            ProtectedKey::Claim { namespace, name } => self.claim(namespace, name).await?,
            ProtectedKey::Volume { name } => self.volume(name).await?,
            ProtectedKey::Attributes { name } => self.attributes(name).await?,
        }
        Ok(ReconcileResult::Done)
    }
}

impl StorageProtectionReconciler {
    async fn claim(&self, namespace: &str, name: &str) -> Result<(), ReconcileError> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
        let Some(claim) = claims.get_opt(name).await.doing("get the claim")? else {
            return Ok(());
        };
        let pods = if plan::asks_for_pods(&claim) {
            let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
            let found = pods.list(&ListParams::default()).await;
            match found {
                // A server without pods has none that use the claim.
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                found => found.doing("list pods")?.items,
            }
        } else {
            Vec::new()
        };
        let machines = if plan::asks_for_pods(&claim) {
            let objects = Objects(self.client.clone());
            objects.list(VMIS, namespace, "").await.doing("list machines")?
        } else {
            Vec::new()
        };
        match plan::claim(&claim, &pods, &machines) {
            Some(patch) => patched(claims.patch(name, &no_params(), &merge(&patch)).await),
            None => Ok(()),
        }
    }

    async fn volume(&self, name: &str) -> Result<(), ReconcileError> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let Some(volume) = volumes.get_opt(name).await.doing("get the volume")? else {
            return Ok(());
        };
        match plan::volume(&volume) {
            Some(patch) => patched(volumes.patch(name, &no_params(), &merge(&patch)).await),
            None => Ok(()),
        }
    }

    async fn attributes(&self, name: &str) -> Result<(), ReconcileError> {
        let classes = Api::<VolumeAttributesClass>::all(self.client.clone());
        let Some(class) = classes.get_opt(name).await.doing("get the attributes")? else {
            return Ok(());
        };
        let mut users = Vec::new();
        if class.metadata.deletion_timestamp.is_some() {
            let objects = Objects(self.client.clone());
            users = objects.list(CLAIMS, "", "").await.doing("list claims")?;
            users.extend(objects.list(VOLUMES, "", "").await.doing("list volumes")?);
        }
        match plan::attributes(&class, &users) {
            Some(patch) => patched(classes.patch(name, &no_params(), &merge(&patch)).await),
            None => Ok(()),
        }
    }
}

fn no_params() -> PatchParams {
    PatchParams::default()
}

fn merge(patch: &Value) -> Patch<&Value> {
    Patch::Merge(patch)
}

fn patched<T>(result: Result<T, kube::Error>) -> Result<(), ReconcileError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).doing("change finalizers"),
    }
}

#[cfg(test)]
mod tests {
    use client::Meta;

    use super::*;
    use crate::fake::{core_kind, touch};

    #[test]
    fn pods_matter_only_to_claims_that_wait() {
        let mut waiting = Waiting::default();
        let mut keys = |touch: &ObjectChange| waiting.keys(touch).len();
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", ObjectState::Live)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", ObjectState::Deleting)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 1);
        assert_eq!(keys(&touch("pods", "m", "p", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumes", "", "v", ObjectState::Deleting)), 1);
    }

    #[test]
    fn attributes_that_wait_are_checked_when_a_claim_or_volume_changes() {
        let mut waiting = Waiting::default();
        let mut kind = Arc::into_inner(core_kind("persistentvolumes")).unwrap();
        kind.group = ATTRIBUTES_CLASSES.group.into();
        kind.plural = ATTRIBUTES_CLASSES.plural.into();
        let (kind, meta) = (Arc::new(kind), Meta { name: "gold".into(), ..Meta::default() });
        let class = |state| ObjectChange::object(&kind, &meta, state);
        let attributes = vec![ProtectedKey::Attributes { name: "gold".into() }];
        let mut keys = |touch: &ObjectChange| waiting.keys(touch);
        assert_eq!(keys(&class(ObjectState::Live)), attributes);
        assert_eq!(keys(&touch("persistentvolumes", "", "v", ObjectState::Gone)), []);
        assert_eq!(keys(&class(ObjectState::Deleting)), attributes);
        assert_eq!(keys(&touch("persistentvolumes", "", "v", ObjectState::Gone)), attributes);
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", ObjectState::Gone)), attributes);
        assert_eq!(keys(&class(ObjectState::Gone)), []);
        assert_eq!(keys(&touch("persistentvolumes", "", "v", ObjectState::Gone)), []);
    }
}
