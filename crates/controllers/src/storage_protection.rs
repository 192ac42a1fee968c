//! Holding back the deletion of claims and volumes that are in use.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::reconcile::{Doing, Failure, Interest, Next, Reconciler, State, Touch};
use crate::resource::{Objects, VMIS};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Claim { namespace: Arc<str>, name: Arc<str> },
    Volume { name: Arc<str> },
}

/// Remembers which claims wait to be unused, by namespace.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeMap<Arc<str>, BTreeSet<Arc<str>>>);

impl Interest for Waiting {
    type Key = Key;

    fn keys(&mut self, touch: &Touch) -> Vec<Key> {
        match touch {
            Touch::Object { kind, namespace, name, state }
                if kind.is("", "persistentvolumeclaims") =>
            {
                self.note(namespace, name, *state);
                let key = Key::Claim { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                if *state == State::Gone { vec![] } else { vec![key] }
            }
            Touch::Object { kind, namespace, .. } if kind.is("", "pods") || VMIS.is(kind) => {
                self.claims(namespace)
            }
            Touch::Object { kind, name, state: State::Live | State::Deleting, .. }
                if kind.is("", "persistentvolumes") =>
            {
                vec![Key::Volume { name: Arc::clone(name) }]
            }
            Touch::Object { .. } => vec![],
            Touch::Missed(_) => {
                self.0.keys().flat_map(|namespace| self.claims(namespace)).collect()
            }
        }
    }
}

impl Waiting {
    fn note(&mut self, namespace: &Arc<str>, name: &Arc<str>, state: State) {
        if state == State::Deleting {
            self.0.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name));
        } else if let Some(claims) = self.0.get_mut(namespace) {
            claims.remove(name);
            if claims.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    fn claims(&self, namespace: &Arc<str>) -> Vec<Key> {
        let claims = self.0.get(namespace).into_iter().flatten();
        let key = |name: &Arc<str>| Key::Claim {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        claims.map(key).collect()
    }
}

pub(crate) struct Protector {
    pub(crate) client: Client,
}

impl Reconciler for Protector {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Claim { namespace, name } => self.claim(namespace, name).await?,
            Key::Volume { name } => self.volume(name).await?,
        }
        Ok(Next::Done)
    }
}

impl Protector {
    async fn claim(&self, namespace: &str, name: &str) -> Result<(), Failure> {
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

    async fn volume(&self, name: &str) -> Result<(), Failure> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let Some(volume) = volumes.get_opt(name).await.doing("get the volume")? else {
            return Ok(());
        };
        match plan::volume(&volume) {
            Some(patch) => patched(volumes.patch(name, &no_params(), &merge(&patch)).await),
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

fn patched<T>(result: Result<T, kube::Error>) -> Result<(), Failure> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).doing("change finalizers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::touch;

    #[test]
    fn pods_matter_only_to_claims_that_wait() {
        let mut waiting = Waiting::default();
        let mut keys = |touch: &Touch| waiting.keys(touch).len();
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", State::Live)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", State::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", State::Deleting)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", State::Gone)), 1);
        assert_eq!(keys(&touch("pods", "m", "p", State::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumeclaims", "n", "c", State::Gone)), 0);
        assert_eq!(keys(&touch("pods", "n", "p", State::Gone)), 0);
        assert_eq!(keys(&touch("persistentvolumes", "", "v", State::Deleting)), 1);
    }
}
