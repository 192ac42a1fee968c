//! Where the service `kubernetes` leads in a cluster with several management nodes: to the API
//! servers of those that are ready. A server alone writes its own address at its start.

mod plan;

use kube::Client;

use crate::node::AllNodes;
use crate::object::is_merged;
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult, Reconciler};
use crate::resource::{NODES, Objects, Resource};

const ENDPOINTS: Resource = Resource::new("", "v1", "endpoints");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

pub(crate) struct ApiEndpointsReconciler {
    objects: Objects,
}

impl ApiEndpointsReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client) }
    }
}

impl Reconciler for ApiEndpointsReconciler {
    type Key = AllNodes;

    async fn reconcile(&self, _: &AllNodes) -> Result<ReconcileResult, ReconcileError> {
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let servers = plan::servers(&nodes);
        if servers.is_empty() {
            return Ok(ReconcileResult::Done);
        }
        for (resource, wanted) in
            [(ENDPOINTS, plan::endpoints(&servers)), (SLICES, plan::slice(&servers))]
        {
            let found = self.objects.get(resource, plan::NAMESPACE, plan::NAME).await;
            match found.doing("get the endpoints of the API")? {
                Some(found) if is_merged(&found, &wanted) => {}
                Some(_) => {
                    let merged =
                        self.objects.merge(resource, plan::NAMESPACE, plan::NAME, &wanted).await;
                    merged.doing("update the endpoints of the API")?;
                }
                None => {
                    let made = self.objects.create(resource, plan::NAMESPACE, &wanted).await;
                    made.doing("create the endpoints of the API")?;
                }
            }
        }
        Ok(ReconcileResult::Done)
    }
}
