//! The Node object of this host and its heartbeat.
//!
//! The lease in `kube-node-lease` is renewed every ten seconds and is what says that the node
//! is alive. The Node itself is looked at as often, and written only when something changed.

mod facts;
mod plan;

use std::time::Duration;

use base::{Chain, Stop, clock};
use client::Fault;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api::{MANAGER, merge, present};
use crate::config::Config;

pub(crate) use facts::{Findings, Virtualization};

/// As kubelet's: a node is given up when its lease is this old.
const LEASE_SECONDS: i32 = 40;
const BEAT: Duration = Duration::from_secs(10);
/// When the server does not answer: soon again, so that a start is not held up by a beat.
const RETRY: Duration = Duration::from_secs(1);
const LEASES: &str = "kube-node-lease";

/// Why the node could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
struct HeartbeatError {
    doing: &'static str,
    source: Fault,
}

trait HeartbeatContext<T> {
    fn doing(self, doing: &'static str) -> Result<T, HeartbeatError>;
}

impl<T> HeartbeatContext<T> for kube::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, HeartbeatError> {
        self.map_err(|failure| HeartbeatError { doing, source: Fault(failure) })
    }
}

/// Keeps the node registered and alive until `stop`.
pub(crate) async fn run(
    client: Client,
    config: Config,
    mut findings: watch::Receiver<Findings>,
    mut stop: Stop,
) {
    let mut failing = false;
    loop {
        let found = findings.borrow_and_update().clone();
        let wait = match beat(&client, &config, found).await {
            Ok(()) => {
                failing = false;
                BEAT
            }
            Err(failure) => {
                // A server that stays away is told of once.
                if failing {
                    debug!(error = %Chain(&failure), "node is still not up to date");
                } else {
                    warn!(error = %Chain(&failure), "cannot keep the node up to date");
                }
                failing = true;
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(()) = findings.changed() => {}
            () = stop.requested() => return,
        }
    }
}

async fn beat(client: &Client, config: &Config, findings: Findings) -> Result<(), HeartbeatError> {
    let facts = facts::HostFacts { findings, ..facts::read(&config.data_dir) };
    let nodes = Api::<Node>::all(client.clone());
    let name = &config.node_name;
    let uid = match present(nodes.get(name).await).doing("read the node")? {
        None => {
            let node = plan::birth(config, &facts, clock::now());
            let node = serde_json::from_value(node).expect("a node of ours is a node");
            let born = nodes.create(&PostParams::default(), &node).await;
            info!(node = %name, "node registered");
            born.doing("register the node")?.metadata.uid
        }
        Some(node) => {
            let uid = node.metadata.uid.clone();
            let value = serde_json::to_value(&node).expect("a node is JSON");
            update(&nodes, config, &facts, &value).await?;
            uid
        }
    };
    renew(client, name, &uid.unwrap_or_default()).await
}

async fn update(
    nodes: &Api<Node>,
    config: &Config,
    facts: &facts::HostFacts,
    node: &Value,
) -> Result<(), HeartbeatError> {
    let patches = plan::patches(config, facts, node, clock::now());
    if let Some(patch) = patches.metadata {
        merge(nodes, &config.node_name, &patch).await.doing("label the node")?;
    }
    if let Some(patch) = patches.status {
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch = kube::api::Patch::Merge(&patch);
        nodes.patch_status(&config.node_name, &params, &patch).await.doing("write node status")?;
    }
    Ok(())
}

async fn renew(client: &Client, name: &str, uid: &str) -> Result<(), HeartbeatError> {
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let now = clock::rfc3339_micro(clock::now());
    let spec = json!({
        "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
    });
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
