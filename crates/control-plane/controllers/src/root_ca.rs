//! The ConfigMap `kube-root-ca.crt` in every namespace, which clients inside the cluster
//! trust the server by.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};

use self::plan::RootCaStep;
use crate::active::{ActiveNamespaces, refused_by_namespace};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};

/// Every active namespace, again whenever its ConfigMap is touched.
#[derive(Debug, Default)]
pub(crate) struct Published(ActiveNamespaces);

impl EventMapper for Published {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key> {
        self.0.keys(touch, ("configmaps", plan::NAME))
    }
}

pub(crate) struct RootCaReconciler {
    pub(crate) client: Client,
    /// PEM.
    pub(crate) root_ca: String,
}

impl Reconciler for RootCaReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, namespace: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(plan::NAME).await.doing("get the root CA's ConfigMap")?;
        let params = PostParams::default();
        let written = match plan::step(found, &self.root_ca) {
            RootCaStep::Nothing => return Ok(ReconcileResult::Done),
            RootCaStep::Create(map) => maps.create(&params, &map).await,
            RootCaStep::Replace(map) => maps.replace(plan::NAME, &params, &map).await,
        };
        match written {
            Err(failure) if refused_by_namespace(&failure) => Ok(ReconcileResult::Done),
            written => {
                written.map(|_| ReconcileResult::Done).doing("write the root CA's ConfigMap")
            }
        }
    }
}
