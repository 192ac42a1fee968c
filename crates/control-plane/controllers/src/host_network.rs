//! The status of HostNetworkConfigs as a whole: whether all nodes have their interface. Nodes write
//! their own entries; those of nodes that are gone are removed here.

mod plan;

use kube::Client;

use crate::key::ObjectKey;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, is_refused};
use hci::network::{GROUP, VERSION};
use plan::HostNetworkState;

const CONFIGS: Resource = Resource::new(GROUP, VERSION, "hostnetworkconfigs");
const NETWORKS: Resource = Resource::new(GROUP, VERSION, "clusternetworks");

/// All HostNetworkConfigs are decided together, under one key. A node whose labels change writes its
/// entries itself.
#[derive(Debug, Default)]
pub(crate) struct HostNetworkMapper;

impl EventMapper for HostNetworkMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let concerns = match touch {
            ObjectChange::Missed(kind) => [CONFIGS, NETWORKS, NODES].iter().any(|own| own.is(kind)),
            ObjectChange::Object { kind, state, .. } => {
                let is_gone = *state == ObjectState::Gone;
                CONFIGS.is(kind) && !is_gone || NETWORKS.is(kind) || NODES.is(kind) && is_gone
            }
        };
        if concerns { vec![ObjectKey::new("", CONFIGS.plural)] } else { Vec::new() }
    }
}

pub(crate) struct HostNetworkReconciler(Objects);

impl HostNetworkReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for HostNetworkReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let state = HostNetworkState {
            configs: self.0.list(CONFIGS, "", "").await.doing("list host network configs")?,
            cluster_networks: self.0.list(NETWORKS, "", "").await.doing("list cluster networks")?,
            nodes: self.0.list(NODES, "", "").await.doing("list nodes")?,
        };
        for (name, patch) in plan::plan(&state, base::clock::now()) {
            match self.0.merge_status(CONFIGS, "", &name, &patch).await {
                // Changed or deleted meanwhile: the next event decides again.
                Err(failure) if [404, 409].iter().any(|code| is_refused(&failure, *code)) => {}
                written => drop(written.doing("write the status of a host network config")?),
            }
        }
        Ok(ReconcileResult::Done)
    }
}
