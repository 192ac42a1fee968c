//! The requests of the collector: they carry out, and decide nothing.

use std::sync::Arc;

use client::{Catalog, CatalogKind, Fault, Meta, Owner, objects};
use kube::Client;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::json;
use tokio::sync::watch;

use super::graph::{ORPHAN, ObjectLocation, Uid, place_of};
use super::plan::{self, DeletionPropagation, GarbageAction, OwnerLookup};
use crate::event;

/// Why an object could not be dealt with now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("no kind {kind} in {api_version} is served")]
    UnknownKind { api_version: Arc<str>, kind: Arc<str> },
    #[error("cannot {doing} {} {}/{}", place.kind, place.namespace, place.name)]
    Request { doing: &'static str, place: Box<ObjectLocation>, source: Fault },
}

impl CollectError {
    pub(crate) fn is_expected(&self) -> bool {
        match self {
            Self::UnknownKind { .. } => true,
            Self::Request { source, .. } => source.code() == Some(409),
        }
    }

    fn request(doing: &'static str, place: &ObjectLocation, source: kube::Error) -> Self {
        Self::Request { doing, place: Box::new(place.clone()), source: Fault(source) }
    }
}

/// An owner the server was asked about: where it was searched and what was found.
pub(crate) struct OwnerQuery {
    pub(crate) owner: Owner,
    pub(crate) place: ObjectLocation,
    pub(crate) answer: OwnerLookup,
}

/// The requests of the collector.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
}

impl Server {
    fn kind(
        &self,
        api_version: &Arc<str>,
        kind: &Arc<str>,
    ) -> Result<Arc<CatalogKind>, CollectError> {
        let found = self.catalog.borrow().find(api_version, kind).map(Arc::clone);
        found.ok_or_else(|| CollectError::UnknownKind {
            api_version: Arc::clone(api_version),
            kind: Arc::clone(kind),
        })
    }

    pub(crate) async fn get(&self, place: &ObjectLocation) -> Result<Option<Meta>, CollectError> {
        let kind = self.kind(&place.api_version, &place.kind)?;
        objects::get(&self.client, &kind, &place.namespace, &place.name)
            .await
            .map_err(|source| CollectError::request("get", place, source))
    }

    pub(crate) async fn ask(
        &self,
        latest: &Meta,
        owners: Vec<Owner>,
    ) -> Result<Vec<OwnerQuery>, CollectError> {
        let mut asked = Vec::with_capacity(owners.len());
        for owner in owners {
            let kind = self.kind(&owner.api_version, &owner.kind)?;
            let (place, answer) = match plan::owner_namespace(kind.namespaced, &latest.namespace) {
                Err(answer) => (place_of(&owner, ""), answer),
                Ok(namespace) => {
                    let place = place_of(&owner, namespace);
                    let found = self.get(&place).await?;
                    let answer = plan::answer(&owner, found.as_ref());
                    (place, answer)
                }
            };
            asked.push(OwnerQuery { owner, place, answer });
        }
        Ok(asked)
    }

    pub(crate) async fn write(
        &self,
        place: &ObjectLocation,
        latest: &Meta,
        action: &GarbageAction,
    ) -> Result<(), CollectError> {
        let kind = self.kind(&place.api_version, &place.kind)?;
        let (namespace, name) = (&*place.namespace, &*place.name);
        let (uid, version) = (&*latest.uid, &*latest.resource_version);
        let result = match action {
            GarbageAction::Delete(policy) => {
                let params = DeleteParams {
                    propagation_policy: Some(match policy {
                        DeletionPropagation::Background => PropagationPolicy::Background,
                        DeletionPropagation::Foreground => PropagationPolicy::Foreground,
                        DeletionPropagation::Orphan => PropagationPolicy::Orphan,
                    }),
                    preconditions: Some(Preconditions {
                        uid: Some(uid.to_owned()),
                        resource_version: Some(version.to_owned()),
                    }),
                    ..DeleteParams::default()
                };
                objects::delete(&self.client, &kind, namespace, name, &params).await
            }
            GarbageAction::SetOwners(owners) => {
                let patch = json!({"metadata": {"uid": uid, "resourceVersion": version,
                    "ownerReferences": owners}});
                objects::merge(&self.client, &kind, namespace, name, &patch).await
            }
            GarbageAction::SetFinalizers(finalizers) => {
                let patch = json!({"metadata": {"uid": uid, "resourceVersion": version,
                    "finalizers": finalizers}});
                objects::merge(&self.client, &kind, namespace, name, &patch).await
            }
        };
        result.map_err(|source| CollectError::request("change", place, source))
    }

    /// Takes the owner out of its dependents, then its finalizer off.
    pub(crate) async fn orphan(
        &self,
        uid: &Uid,
        place: &ObjectLocation,
        dependents: &[ObjectLocation],
    ) -> Result<(), CollectError> {
        for dependent in dependents {
            let Some(latest) = self.get(dependent).await? else { continue };
            if let Some(action) = plan::without_owner(&latest, uid) {
                self.write(dependent, &latest, &action).await?;
            }
        }
        let Some(latest) = self.get(place).await?.filter(|latest| latest.uid == *uid) else {
            return Ok(());
        };
        match plan::without_finalizer(&latest, ORPHAN) {
            Some(action) => self.write(place, &latest, &action).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn report(&self, uid: &Uid, place: &ObjectLocation, owner: &Owner) {
        let regarding = event::Regarding {
            api_version: &place.api_version,
            kind: &place.kind,
            namespace: &place.namespace,
            name: &place.name,
            uid,
        };
        let message = plan::misplaced_owner(place, owner);
        let source = "garbage-collector-controller";
        event::warn(&self.client, source, &regarding, "OwnerRefInvalidNamespace", message).await;
    }
}
