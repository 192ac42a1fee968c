//! The node's lease in `kube-node-lease`: renewing it shows that the node is alive.
//!
//! It has a task of its own, so that nothing else of the agent can delay a renewal: a node whose
//! lease is not renewed for seconds is suspected to be lost. The management node renews its own
//! rarely: the controller that checks it runs on it.

use std::time::Duration;

use base::{Chain, Stop, clock};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::{HeartbeatContext as _, HeartbeatError};
use crate::api::merge;
use crate::config::{Config, NodeRole};

const LEASES: &str = "kube-node-lease";
/// How long one attempt may take.
const RENEW_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(500);

/// How the lease of a node is renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeasePlan {
    node: String,
    /// How long the lease is valid after a renewal.
    seconds: i32,
    interval: Duration,
}

impl LeasePlan {
    pub(super) fn of(config: &Config) -> Self {
        let (seconds, interval) = match config.role {
            NodeRole::Management => (40, Duration::from_secs(10)),
            NodeRole::ManagementPeer | NodeRole::Worker | NodeRole::Witness => {
                (6, Duration::from_secs(1))
            }
        };
        Self { node: config.node_name.clone(), seconds, interval }
    }

    fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.node, "leaseDurationSeconds": self.seconds,
            "renewTime": clock::rfc3339_micro(clock::now()),
        })
    }
}

/// Renews the lease until `stop`, from the moment that the Node exists: `node` is its uid.
pub(super) async fn run(
    client: Client,
    plan: LeasePlan,
    mut node: watch::Receiver<Option<String>>,
    mut stop: Stop,
) {
    let mut failing = false;
    tokio::select! {
        known = node.wait_for(Option::is_some) => if known.is_err() { return },
        () = stop.requested() => return,
    }
    loop {
        let uid = node.borrow().clone().unwrap_or_default();
        let started = tokio::time::Instant::now();
        let renewed = tokio::time::timeout(RENEW_TIMEOUT, renew(&client, &plan, &uid)).await;
        let wait = match renewed {
            Ok(Ok(())) => {
                if failing {
                    info!("node renews its lease again");
                }
                failing = false;
                plan.interval.saturating_sub(started.elapsed())
            }
            failed => {
                report(&failed, failing);
                failing = true;
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.requested() => return,
        }
    }
}

/// A server that stays away is reported once.
fn report(failed: &Result<Result<(), HeartbeatError>, tokio::time::error::Elapsed>, failing: bool) {
    match failed {
        Ok(Err(failure)) if !failing => {
            warn!(error = %Chain(failure), "cannot renew the lease of the node");
        }
        Ok(Err(failure)) => debug!(error = %Chain(failure), "lease is still not renewed"),
        Err(_) if !failing => warn!("cannot renew the lease of the node: the server is silent"),
        _ => debug!("lease is still not renewed"),
    }
}

async fn renew(client: &Client, plan: &LeasePlan, uid: &str) -> Result<(), HeartbeatError> {
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let (name, spec) = (plan.node.as_str(), plan.spec());
    match merge(&leases, name, &json!({ "spec": spec })).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        answer => return answer.map(|_| ()).doing("renew the lease"),
    }
    // Owned by the node, so that it goes with it.
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [owner]},
        "spec": spec,
    });
    let lease = serde_json::from_value(lease).expect("a lease of ours is a lease");
    leases.create(&PostParams::default(), &lease).await.map(|_| ()).doing("create the lease")
}
