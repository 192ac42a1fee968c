//! Keeps `status` of ResourceQuotas correct: usage is counted again when a quota changes, when an
//! object that it may count is deleted, and every few minutes.
//!
//! Admission charges for what is created; this controller repairs and gives back.

mod plan;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::clock;
use client::{Catalog, CatalogKind, objects};
use kinds::quota::Amounts;
use kube::Client;
use kube::api::{ListParams, PostParams};
use kube::core::Request;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use self::settling::{PendingQuotas, SETTLE};
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};

const REFRESH: Duration = Duration::from_secs(300);
/// Objects per page of the kinds that have to be read whole.
const PAGE: u32 = 200;

/// Remembers which namespaces have quotas; nothing in the others matters.
#[derive(Debug, Default)]
pub(crate) struct Quotas(BTreeMap<Arc<str>, BTreeSet<Arc<str>>>);

impl EventMapper for Quotas {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state }
                if kind.is("", "resourcequotas") =>
            {
                self.note(namespace, name, *state);
                vec![Arc::clone(namespace)]
            }
            ObjectChange::Object { kind, namespace, state, .. } => {
                let counts =
                    *state == ObjectState::Gone || plan::is_read_whole(&kind.group, &kind.plural);
                let known = counts && self.0.contains_key(namespace);
                if known { vec![Arc::clone(namespace)] } else { vec![] }
            }
            ObjectChange::Missed(_) => self.0.keys().cloned().collect(),
        }
    }
}

impl Quotas {
    fn note(&mut self, namespace: &Arc<str>, name: &Arc<str>, state: ObjectState) {
        if state != ObjectState::Gone {
            self.0.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name));
        } else if let Some(quotas) = self.0.get_mut(namespace) {
            quotas.remove(name);
            if quotas.is_empty() {
                self.0.remove(namespace);
            }
        }
    }
}

pub(crate) struct QuotaReconciler {
    client: Client,
    catalog: watch::Receiver<Arc<Catalog>>,
    settling: Mutex<PendingQuotas>,
}

impl Reconciler for QuotaReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, namespace: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let catalog = Arc::clone(&self.catalog.borrow());
        let Some(kind) = catalog.resource("", "resourcequotas") else {
            return Ok(ReconcileResult::Done);
        };
        let mut quotas = Vec::new();
        self.read(kind, namespace, |quota| quotas.push(quota)).await.doing("list quotas")?;
        if quotas.is_empty() {
            return Ok(ReconcileResult::Done);
        }
        let mut used: Vec<Amounts> =
            quotas.iter().map(|quota| plan::zero(quota, &catalog)).collect();
        for kind in plan::counted_kinds(&quotas, &catalog) {
            let now = clock::now();
            let mut charge = |object: &Value| {
                for (quota, used) in quotas.iter().zip(&mut used) {
                    plan::charge(used, quota, &kind, object, now);
                }
            };
            if plan::is_read_whole(&kind.group, &kind.plural) {
                let read = self.read(&kind, namespace, |object| charge(&object)).await;
                read.doing("list what a quota counts")?;
            } else {
                let found = objects::list(&self.client, &kind, namespace).await;
                for _ in found.doing("list what a quota counts")? {
                    charge(&Value::Null);
                }
            }
        }
        let mut again = REFRESH;
        for (quota, used) in quotas.into_iter().zip(used) {
            if plan::gives_back(&quota, &used) && !self.has_settled(&quota) {
                again = SETTLE;
                continue;
            }
            if let Some(updated) = plan::updated(quota, &used) {
                self.write(kind, namespace, &updated).await?;
            }
        }
        Ok(ReconcileResult::Again(again))
    }
}

impl QuotaReconciler {
    pub(crate) fn new(client: Client, catalog: watch::Receiver<Arc<Catalog>>) -> Self {
        Self { client, catalog, settling: Mutex::default() }
    }

    fn has_settled(&self, quota: &Value) -> bool {
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        settling.is_over(quota, Instant::now())
    }

    /// Shows all objects of a kind to `each`, holding one page at a time.
    async fn read(
        &self,
        kind: &CatalogKind,
        namespace: &str,
        mut each: impl FnMut(Value) + Send,
    ) -> Result<(), kube::Error> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let request = Request::new(kind.path(namespace))
                .list(&params)
                .map_err(kube::Error::BuildRequest)?;
            let mut page: Value = self.client.request(request).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                items.into_iter().for_each(&mut each);
            }
            match object::continue_token(&page) {
                Some(token) => params = params.continue_token(token),
                None => return Ok(()),
            }
        }
    }

    async fn write(
        &self,
        kind: &CatalogKind,
        namespace: &str,
        quota: &Value,
    ) -> Result<(), ReconcileError> {
        let name = object::name(quota);
        let body = serde_json::to_vec(quota).map_err(kube::Error::SerdeError);
        let request = Request::new(kind.path(namespace))
            .replace_subresource("status", name, &PostParams::default(), body.doing("encode")?)
            .map_err(kube::Error::BuildRequest)
            .doing("build a request")?;
        match self.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop).doing("write the quota's status"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{core_kind, touch};

    #[test]
    fn only_namespaces_with_quotas_are_counted() {
        let mut quotas = Quotas::default();
        let mut keys = |touch: &ObjectChange| quotas.keys(touch).len();
        assert_eq!(keys(&touch("secrets", "n", "s", ObjectState::Gone)), 0);
        assert_eq!(keys(&touch("resourcequotas", "n", "q", ObjectState::Live)), 1);
        assert_eq!(keys(&touch("secrets", "n", "s", ObjectState::Gone)), 1);
        assert_eq!(
            keys(&touch("secrets", "n", "s", ObjectState::Live)),
            0,
            "admission has charged it"
        );
        assert_eq!(keys(&touch("pods", "n", "p", ObjectState::Live)), 1, "it may have ended");
        assert_eq!(keys(&touch("pods", "m", "p", ObjectState::Live)), 0);
        assert_eq!(keys(&ObjectChange::Missed(core_kind("pods"))), 1);
        assert_eq!(keys(&touch("resourcequotas", "n", "q", ObjectState::Gone)), 1);
        assert_eq!(keys(&touch("secrets", "n", "s", ObjectState::Gone)), 0);
    }
}
