//! The Node object of this host. It is read every ten seconds, and written only when something
//! changed. `lease` says that the node is alive, `observer` what it sees of others.

mod facts;
mod lease;
mod observer;
mod plan;
mod rejoin;

use std::time::Duration;

use base::{Backoff, Chain, Stop, clock};
use client::Fault;
use k8s_openapi::api::core::v1::Node;
use kube::api::{PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api::{MANAGER, merge, present};
use crate::config::{Config, Network};

pub(crate) use facts::Findings;
pub(crate) use observer::NodeObserver;

/// A beat that takes longer is given up: its connection may lead nowhere.
const BEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the Node is read.
const BEAT: Duration = Duration::from_secs(10);
/// When the server does not answer: soon again, so that a start is not held up by a beat.
/// The pause doubles up to that between two beats.
const FIRST_RETRY: Duration = Duration::from_secs(1);

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
    findings: watch::Receiver<Findings>,
    mut stop: Stop,
) {
    let (registered, uid) = watch::channel(None);
    let renewing = lease::run(client.clone(), lease::LeasePlan::of(&config), uid, stop.clone());
    tokio::join!(renewing, maintain(client, config, findings, registered, &mut stop));
}

async fn maintain(
    client: Client,
    config: Config,
    mut findings: watch::Receiver<Findings>,
    registered: watch::Sender<Option<String>>,
    stop: &mut Stop,
) {
    let mut failing = false;
    let mut retries = Backoff::new(FIRST_RETRY, BEAT);
    loop {
        let found = findings.borrow_and_update().clone();
        let beat = tokio::time::timeout(BEAT_TIMEOUT, beat(&client, &config, found));
        let wait = match beat.await {
            Err(_) => retries.delay(),
            Ok(Ok(uid)) => {
                failing = false;
                retries.reset();
                registered.send_if_modified(|known| std::mem::replace(known, uid.clone()) != uid);
                BEAT
            }
            Ok(Err(failure)) => {
                // A server that stays away is reported once.
                if failing {
                    debug!(error = %Chain(&failure), "node is still not up to date");
                } else {
                    warn!(error = %Chain(&failure), "cannot keep the node up to date");
                }
                failing = true;
                retries.delay()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(()) = findings.changed() => {}
            () = stop.requested() => return,
        }
    }
}

/// Brings the Node up to date; answers its uid.
async fn beat(
    client: &Client,
    config: &Config,
    findings: Findings,
) -> Result<Option<String>, HeartbeatError> {
    let network = match &config.network {
        Network::Nat { cidr, .. } => Some(cidr.trunc()),
        Network::User => None,
    };
    let addresses = net::host_addresses(network).await;
    let addresses = addresses
        .inspect_err(|why| debug!(error = %Chain(why), "cannot list the addresses of the host"));
    let (addresses, read) = (addresses.ok(), facts::read(&config.data_dir));
    let facts = facts::HostFacts { findings, addresses, ..read };
    let nodes = Api::<Node>::all(client.clone());
    let name = &config.node_name;
    Ok(match present(nodes.get(name).await).doing("read the node")? {
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
    })
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
