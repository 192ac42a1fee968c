//! NetworkPolicies, ClusterNetworkPolicies, MultiNetworkPolicies and the isolation of namespaces, enforced
//! for the guests of this node.
//!
//! Follows these policies, Namespaces, Pods, machine instances and address pools of all namespaces, and
//! the guests that this node connects, and hands what `plan` (the guest network) and `bridged` (other
//! networks) make of them to the node's network (`net::Network::restrict`).
//! Nothing is handed over before all lists have been read: a restart leaves the rules in force.

mod bridged;
mod bridged_object;
mod bridged_snapshot;
mod change;
mod cluster_object;
mod object;
mod plan;
mod snapshot;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use kube::Client;
use net::Network;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::dhcp::BridgedInterfaces;
use crate::machine::tap_key;
use crate::overlay::RemoteGuests;
use crate::retry::Retries;
use bridged::BridgedCluster;
pub(crate) use bridged_snapshot::{BridgedInterface, BridgedSources, bridged_interfaces};
use change::{PolicyChange, PolicyObjects};
pub(crate) use plan::LocalGuest;
pub(crate) use snapshot::{JudgingNode, PolicySnapshot, PolicySources, Ruling};

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to change the network: the pause doubles while the same change fails.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// As many events as are taken together.
const BATCH: usize = 256;

/// The guests that this node connects, by their addresses on its network.
pub(crate) type LocalGuests = BTreeMap<Ipv4Addr, LocalGuest>;

/// Where policies are enforced.
pub(crate) struct PolicyTarget {
    pub(crate) node: String,
    pub(crate) network: Network,
    pub(crate) guests: watch::Receiver<LocalGuests>,
    pub(crate) remote: watch::Receiver<Arc<RemoteGuests>>,
    /// Interfaces that this node connects to bridges.
    pub(crate) bridged: watch::Receiver<BridgedInterfaces>,
}

/// Runs until `stop`; the rules in force stay so.
pub(crate) async fn run(client: Client, target: PolicyTarget, mut stop: Stop) {
    let changes = change::changes(&client);
    let mut changes = std::pin::pin!(changes.ready_chunks(BATCH));
    let (mut guests, mut remote) = (target.guests.clone(), target.remote.clone());
    let mut bridged = target.bridged.clone();
    let mut follower = PolicyWatcher::new(target);
    let mut wait = None;
    loop {
        tokio::select! {
            batch = changes.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for change in batch {
                    failed |= follower.take(change);
                }
                wait = follower.hand_over().await;
                if failed {
                    pause(&mut stop).await;
                }
            }
            changed = guests.changed() => {
                if changed.is_err() {
                    return;
                }
                wait = follower.hand_over().await;
            }
            changed = remote.changed() => {
                if changed.is_err() {
                    return;
                }
                wait = follower.hand_over().await;
            }
            changed = bridged.changed() => {
                if changed.is_err() {
                    return;
                }
                wait = follower.hand_over().await;
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                wait = follower.hand_over().await;
            }
            () = stop.requested() => return,
        }
    }
}

async fn pause(stop: &mut Stop) {
    tokio::select! {
        () = tokio::time::sleep(RETRY) => {}
        () = stop.requested() => {}
    }
}

/// The known objects of the cluster, and the policies that the node enforces.
struct PolicyWatcher {
    target: PolicyTarget,
    objects: PolicyObjects,
    enforced: Option<net::Policies>,
    retries: Retries<(), net::Policies>,
    is_failing: bool,
}

impl PolicyWatcher {
    fn new(target: PolicyTarget) -> Self {
        Self {
            target,
            objects: PolicyObjects::default(),
            enforced: None,
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: PolicyChange) -> bool {
        let outcome = self.objects.take(change);
        let Err(failure) = outcome else {
            self.is_failing = false;
            return false;
        };
        if self.is_failing {
            debug!(error = %Chain(&failure), "still cannot watch network policies");
        } else {
            warn!(error = %Chain(&failure), "cannot watch network policies");
        }
        self.is_failing = true;
        true
    }

    /// The policies to enforce; nothing before all lists have been read.
    fn wanted(&self) -> Option<net::Policies> {
        let PolicyTarget { node, network, guests, remote, bridged } = &self.target;
        let namespaces = self.objects.namespaces.all()?;
        let on_bridges = BridgedCluster {
            policies: self.objects.multi_policies.all()?,
            namespaces,
            instances: self.objects.instances.all()?,
            pools: self.objects.pools.all()?,
        };
        let policies = plan::policies(&plan::Cluster {
            policies: self.objects.policies.all()?,
            cluster_policies: self.objects.cluster_policies.all()?,
            namespaces,
            pods: self.objects.pods.all()?,
            local: &guests.borrow(),
            remote: &remote.borrow(),
            node,
            network: network.bridge().gateway.trunc(),
        });
        let connected = bridged.borrow();
        let taps = bridged::policies(&on_bridges, |instance, interface| {
            let tap = network.bridge().tap_name(&tap_key(&instance.uid, &interface.name));
            let is_here = instance.nodes.contains(node) || connected.contains_key(&tap);
            is_here.then_some(tap)
        });
        Some(net::Policies { taps, ..policies })
    }

    /// Makes the network follow; returns when to try again.
    async fn hand_over(&mut self) -> Option<Duration> {
        let wanted = self.wanted()?;
        if self.enforced.as_ref() == Some(&wanted) {
            return None;
        }
        if let Some(pause) = self.retries.pause(&(), &wanted, Instant::now()) {
            return Some(pause);
        }
        match self.target.network.restrict(wanted.clone()).await {
            Ok(()) => {
                self.retries.succeed(&());
                self.enforced = Some(wanted);
                None
            }
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot enforce network policies");
                self.enforced = None;
                Some(self.retries.fail((), wanted, Instant::now()))
            }
        }
    }
}
