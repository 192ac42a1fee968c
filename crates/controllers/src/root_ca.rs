//! The ConfigMap `kube-root-ca.crt` in every namespace, which clients inside the cluster
//! trust the server by.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};

use self::plan::Step;
use crate::active::{ActiveNamespaces, refused_by_namespace};
use crate::reconcile::{Doing, Failure, Interest, Next, Reconciler, Touch};

/// Every active namespace, again whenever its ConfigMap is touched.
#[derive(Debug, Default)]
pub(crate) struct Published(ActiveNamespaces);

impl Interest for Published {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &Touch) -> Vec<Self::Key> {
        self.0.keys(touch, ("configmaps", plan::NAME))
    }
}

pub(crate) struct Publisher {
    pub(crate) client: Client,
    /// PEM.
    pub(crate) root_ca: String,
}

impl Reconciler for Publisher {
    type Key = Arc<str>;

    async fn reconcile(&self, namespace: &Arc<str>) -> Result<Next, Failure> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(plan::NAME).await.doing("get the root CA's ConfigMap")?;
        let params = PostParams::default();
        let written = match plan::step(found, &self.root_ca) {
            Step::Nothing => return Ok(Next::Done),
            Step::Create(map) => maps.create(&params, &map).await,
            Step::Replace(map) => maps.replace(plan::NAME, &params, &map).await,
        };
        match written {
            Err(failure) if refused_by_namespace(&failure) => Ok(Next::Done),
            written => written.map(|_| Next::Done).doing("write the root CA's ConfigMap"),
        }
    }
}
