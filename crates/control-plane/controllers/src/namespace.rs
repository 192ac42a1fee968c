//! Emptying namespaces that are being deleted, then releasing them.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use client::{Catalog, CatalogKind, Fault, Verb, objects};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PostParams};
use kube::core::Request;
use kube::{Api, Client};
use tokio::sync::watch;

use self::plan::DeletionPass;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};

/// How many kinds are emptied at a time.
const PARALLEL: usize = 8;
/// The next check of a namespace that is not empty, if nothing in it changes before.
const RETRY: Duration = Duration::from_secs(5);

/// The namespaces that are being emptied: every deletion in them triggers a reconciliation.
#[derive(Debug, Default)]
pub(crate) struct Terminating(BTreeSet<Arc<str>>);

impl EventMapper for Terminating {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key> {
        match touch {
            ObjectChange::Object { kind, name, state, .. } if kind.is("", "namespaces") => {
                match state {
                    ObjectState::Deleting => {
                        self.0.insert(Arc::clone(name));
                        vec![Arc::clone(name)]
                    }
                    ObjectState::Live | ObjectState::Gone => {
                        self.0.remove(name);
                        vec![]
                    }
                }
            }
            ObjectChange::Object { namespace, state: ObjectState::Gone, .. }
                if self.0.contains(namespace) =>
            {
                vec![Arc::clone(namespace)]
            }
            ObjectChange::Object { .. } => vec![],
            ObjectChange::Missed(_) => self.0.iter().cloned().collect(),
        }
    }
}

pub(crate) struct NamespaceReconciler {
    pub(crate) client: Client,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
}

impl Reconciler for NamespaceReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let namespaces = Api::<Object>::all(self.client.clone());
        let Some(mut namespace) = namespaces.get_opt(name).await.doing("get the namespace")? else {
            return Ok(ReconcileResult::Done);
        };
        if !plan::is_terminating(&namespace) || !plan::has_finalizer(&namespace) {
            return Ok(ReconcileResult::Done);
        }
        let pass = self.empty(name).await;
        if plan::update_conditions(&mut namespace, &pass, &Time(clock::now())) {
            let written = namespaces.replace_status(name, &PostParams::default(), &namespace).await;
            namespace = written.doing("write the namespace's status")?;
        }
        if !pass.is_clean() {
            return Ok(ReconcileResult::Again(RETRY));
        }
        self.finalize(name, namespace).await
    }
}

impl NamespaceReconciler {
    async fn empty(&self, namespace: &str) -> DeletionPass {
        // A kind that was defined a moment ago may have objects already: discover again.
        let catalog = match client::discover(&self.client).await {
            Ok(catalog) => Arc::new(catalog),
            Err(_) => self.catalog.borrow().clone(),
        };
        let mut pass =
            DeletionPass { undiscovered: catalog.stale.clone(), ..DeletionPass::default() };
        for step in plan::steps(&catalog) {
            let mut emptied = stream::iter(step)
                .map(|kind| async move {
                    let result = self.empty_kind(&kind, namespace).await;
                    (kind, result)
                })
                .buffer_unordered(PARALLEL);
            while let Some((kind, result)) = emptied.next().await {
                match result {
                    Ok(objects) => plan::left(&kind, namespace, &objects, &mut pass),
                    Err(failure) => pass.failures.push(Fault(failure).to_string()),
                }
            }
            if !pass.left.is_empty() {
                break;
            }
        }
        pass
    }

    /// Deletes all objects of a kind and says which are still there.
    async fn empty_kind(
        &self,
        kind: &CatalogKind,
        namespace: &str,
    ) -> Result<Vec<client::Meta>, kube::Error> {
        if !kind.can(Verb::List) {
            return Ok(Vec::new());
        }
        let found = present(objects::list(&self.client, kind, namespace).await)?;
        if found.is_empty() {
            return Ok(found);
        }
        let params = DeleteParams::background();
        if kind.can(Verb::DeleteCollection) {
            objects::delete_all(&self.client, kind, namespace, &params).await?;
        } else {
            for object in found {
                objects::delete(&self.client, kind, namespace, &object.name, &params).await?;
            }
        }
        present(objects::list(&self.client, kind, namespace).await)
    }

    async fn finalize(
        &self,
        name: &str,
        namespace: Object,
    ) -> Result<ReconcileResult, ReconcileError> {
        let body = serde_json::to_vec(&plan::without_finalizer(namespace))
            .map_err(kube::Error::SerdeError)
            .doing("encode the namespace")?;
        let request = Request::new("/api/v1/namespaces")
            .replace_subresource("finalize", name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)
            .doing("build a request")?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(ReconcileResult::Done),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(ReconcileResult::Done),
            Err(source) => Err(source).doing("finalize the namespace"),
        }
    }
}

/// A kind that vanished since it was discovered has left nothing.
fn present(
    found: Result<Vec<client::Meta>, kube::Error>,
) -> Result<Vec<client::Meta>, kube::Error> {
    match found {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{core_kind, touch};

    #[test]
    fn deletions_in_a_namespace_matter_only_while_that_is_being_deleted() {
        let mut terminating = Terminating::default();
        let mut keys = |touch: &ObjectChange| terminating.keys(touch).len();
        assert_eq!(keys(&touch("namespaces", "", "n", ObjectState::Live)), 0);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("namespaces", "", "n", ObjectState::Deleting)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 1);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Deleting)), 0);
        assert_eq!(keys(&touch("pods", "m", "p", ObjectState::Gone)), 0);
        assert_eq!(keys(&ObjectChange::Missed(core_kind("pods"))), 1);
        assert_eq!(keys(&touch("namespaces", "", "n", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Gone)), 0);
    }
}
