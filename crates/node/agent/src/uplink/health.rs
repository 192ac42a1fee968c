//! Checks whether this node is still reached: its API server, gateways and other nodes.
//! `net::HealthRound` evaluates the outcome.

use std::net::IpAddr;
use std::time::Duration;

use base::{Chain, clock};
use client::Fault;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use net::{HealthRound, PingTarget, PingTargets, default_gateways, ping};
use tracing::debug;

/// How long the API server may take to answer.
const API_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an address may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// No more addresses than this are pinged in a round.
const MOST_PEERS: usize = 16;

/// Addresses that are pinged before and after a change.
pub(super) async fn targets(client: &Client, node: &str) -> PingTargets {
    let nodes = Api::<Node>::all(client.clone());
    let params = ListParams::default();
    let listed = tokio::time::timeout(API_TIMEOUT, nodes.list(&params)).await;
    let nodes = match listed {
        Ok(Ok(list)) => list.items,
        _ => Vec::new(),
    };
    let others = nodes.iter().filter(|own| own.metadata.name.as_deref() != Some(node));
    let peers = others.filter_map(internal_address).take(MOST_PEERS);
    let peers = peers.map(|address| PingTarget { address, link: None }).collect();
    PingTargets { gateways: default_gateways(), peers, new_path: Vec::new() }
}

fn internal_address(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let mut internal = addresses.iter().filter(|own| own.type_ == "InternalIP");
    internal.find_map(|own| own.address.parse().ok())
}

/// One round of checks.
pub(super) async fn round(client: &Client, node: &str, targets: &PingTargets) -> HealthRound {
    let nodes = Api::<Node>::all(client.clone());
    let api = async {
        match tokio::time::timeout(API_TIMEOUT, nodes.get(node)).await {
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some(Chain(&Fault(failure)).to_string()),
            Err(_) => Some(format!("no answer within {} s", API_TIMEOUT.as_secs())),
        }
    };
    let asked = targets.all().map(|target| async move {
        let token = u64::try_from(clock::now().as_nanosecond()).unwrap_or_default();
        match ping(target, token, PING_TIMEOUT).await {
            Ok(is_answered) => is_answered.then(|| target.clone()),
            Err(failure) => {
                debug!(address = %target.address, error = %Chain(&failure), "cannot ping");
                None
            }
        }
    });
    let (api, answered) = tokio::join!(api, join_all(asked));
    HealthRound { api, answered: answered.into_iter().flatten().collect() }
}
