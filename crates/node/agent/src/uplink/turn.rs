//! The turn of this node to change its network: one node does at a time, and none tries what another
//! has rolled back. The lease is described by `hci::host_network`, which decides.

use std::time::Duration;

use base::{Chain, clock};
use client::Fault;
use hci::host_network::{LEASE_NAME, LEASE_NAMESPACE, ROLLED_BACK, Turn, turn};
use hci::network::{CLUSTER_NETWORK_KEY, GROUP, VERSION, network_of};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use net::HostChange;
use serde_json::{Value, json};
use tracing::warn;

use crate::api::{is_conflict, present};

/// How long a request about the turn may take.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the turn of this node is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    #[error("cannot take the turn of this node")]
    Refused { source: Fault },
    #[error("the API server does not answer about the turn of this node")]
    Timeout,
}

/// The turns of this node.
pub(super) struct Turns {
    client: Client,
    node: String,
}

impl Turns {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), LEASE_NAMESPACE)
    }

    /// A node that tried the same version of the uplink and rolled it back.
    pub(super) async fn rolled_back_elsewhere(
        &self,
        change: &HostChange,
    ) -> Result<Option<String>, TurnError> {
        let (Some(unit), Some(network)) = (&change.unit, network_of(change.bridge.as_str())) else {
            return Ok(None);
        };
        let revision = unit.revision.split(';').next().unwrap_or_default();
        if unit.uplink.is_none() || revision.is_empty() {
            return Ok(None);
        }
        let resource = super::kind(GROUP, VERSION, "VlanStatus", "vlanstatuses");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let params = ListParams::default().labels(&format!("{CLUSTER_NETWORK_KEY}={network}"));
        let listed = tokio::time::timeout(TURN_TIMEOUT, api.list(&params)).await;
        let listed = listed.map_err(|_| TurnError::Timeout)?;
        let listed = listed.map_err(|failure| TurnError::Refused { source: Fault(failure) })?;
        let mut others = listed.items.iter().filter(|status| {
            let notes = status.metadata.annotations.as_ref();
            notes.and_then(|notes| notes.get(ROLLED_BACK)).is_some_and(|own| own == revision)
        });
        let node = others.find_map(|status| status.data["status"]["node"].as_str());
        Ok(node.filter(|other| *other != self.node).map(str::to_owned))
    }

    /// Takes the turn of this node; answers with the node that has it.
    pub(super) async fn take(&self, deadline: i64) -> Result<Option<String>, TurnError> {
        let leases = self.leases();
        let taken = async {
            let found = present(leases.get(LEASE_NAME).await)?;
            let found = found.map(|lease| json!(lease));
            let now = clock::now().as_second();
            match turn(found.as_ref(), &self.node, now, deadline) {
                Turn::Wait { holder } => Ok(Some(holder)),
                Turn::Take(object) => write_lease(&leases, &object, found.is_some()).await,
            }
        };
        let taken = tokio::time::timeout(TURN_TIMEOUT, taken).await;
        let taken = taken.map_err(|_| TurnError::Timeout)?;
        match taken {
            // Another node was faster.
            Err(failure) if is_conflict(&failure) => Ok(Some("another".to_owned())),
            taken => taken.map_err(|failure| TurnError::Refused { source: Fault(failure) }),
        }
    }

    /// Gives the turn back; one that is not given back ends by itself.
    pub(super) async fn release(&self) {
        let leases = self.leases();
        let released = async {
            let Some(mut lease) = present(leases.get(LEASE_NAME).await)? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.node.as_str()) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            leases.replace(LEASE_NAME, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(TURN_TIMEOUT, released).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                warn!(error = %Chain(&Fault(failure)), "turn of this node is not given back");
            }
            Err(_) => warn!("turn of this node is not given back: the API server does not answer"),
        }
    }
}

async fn write_lease(
    leases: &Api<Lease>,
    object: &Value,
    exists: bool,
) -> kube::Result<Option<String>> {
    let lease: Lease = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams::default();
    if exists {
        leases.replace(LEASE_NAME, &params, &lease).await?;
    } else {
        leases.create(&params, &lease).await?;
    }
    Ok(None)
}
