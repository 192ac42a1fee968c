//! NetworkPolicies, and the isolation of namespaces, enforced for the guests of this node.
//!
//! Follows NetworkPolicies, Namespaces and Pods of all namespaces and the guests that this node
//! connects, and hands what `plan` makes of them to the node's network (`net::Network::restrict`).
//! Nothing is handed over before all lists have been read: a restart leaves the rules in force.

mod object;
mod plan;
mod snapshot;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::Network;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::known_objects::KnownObjects;
use crate::overlay::RemoteGuests;
use object::{NamespaceRecord, PodRecord, PolicyRecord};
pub(crate) use plan::LocalGuest;
pub(crate) use snapshot::{DecidingPolicies, JudgingNode, PolicySnapshot};

/// Between two attempts to reach the server, or to change the network.
const RETRY: Duration = Duration::from_secs(1);
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
}

/// Runs until `stop`; the rules in force stay so.
pub(crate) async fn run(client: Client, target: PolicyTarget, mut stop: Stop) {
    let config = watcher::Config::default;
    let policies = watcher(Api::<NetworkPolicy>::all(client.clone()), config());
    let policies = policies.map(|event| PolicyChange::Policy(Box::new(event)));
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), config());
    let namespaces = namespaces.map(|event| PolicyChange::Namespace(Box::new(event)));
    let pods = watcher(Api::<Pod>::all(client), config());
    let pods = pods.map(|event| PolicyChange::Pod(Box::new(event)));
    let changes = stream::select(stream::select(policies, namespaces), pods);
    let mut changes = std::pin::pin!(changes.ready_chunks(BATCH));
    let (mut guests, mut remote) = (target.guests.clone(), target.remote.clone());
    let mut follower = PolicyWatcher::new(target);
    let mut is_behind = false;
    loop {
        tokio::select! {
            batch = changes.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for change in batch {
                    failed |= follower.take(change);
                }
                is_behind = !follower.hand_over().await;
                if failed {
                    pause(&mut stop).await;
                }
            }
            changed = guests.changed() => {
                if changed.is_err() {
                    return;
                }
                is_behind = !follower.hand_over().await;
            }
            changed = remote.changed() => {
                if changed.is_err() {
                    return;
                }
                is_behind = !follower.hand_over().await;
            }
            () = tokio::time::sleep(RETRY), if is_behind => {
                is_behind = !follower.hand_over().await;
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

/// An event of one of the watches; boxed, since they differ much in size.
enum PolicyChange {
    Policy(Box<Result<Event<NetworkPolicy>, watcher::Error>>),
    Namespace(Box<Result<Event<Namespace>, watcher::Error>>),
    Pod(Box<Result<Event<Pod>, watcher::Error>>),
}

/// The known objects of the cluster, and the policies that the node enforces.
struct PolicyWatcher {
    target: PolicyTarget,
    policies: KnownObjects<PolicyRecord>,
    namespaces: KnownObjects<NamespaceRecord>,
    pods: KnownObjects<PodRecord>,
    enforced: Option<net::Policies>,
    is_failing: bool,
}

impl PolicyWatcher {
    fn new(target: PolicyTarget) -> Self {
        Self {
            target,
            policies: KnownObjects::default(),
            namespaces: KnownObjects::default(),
            pods: KnownObjects::default(),
            enforced: None,
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: PolicyChange) -> bool {
        let outcome = match change {
            PolicyChange::Policy(event) => {
                (*event).map(|event| self.policies.take(event, PolicyRecord::read))
            }
            PolicyChange::Namespace(event) => {
                (*event).map(|event| self.namespaces.take(event, NamespaceRecord::read))
            }
            PolicyChange::Pod(event) => {
                (*event).map(|event| self.pods.take(event, PodRecord::read))
            }
        };
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

    /// Makes the network follow; returns whether it does.
    async fn hand_over(&mut self) -> bool {
        let (Some(policies), Some(namespaces), Some(pods)) =
            (self.policies.all(), self.namespaces.all(), self.pods.all())
        else {
            return true;
        };
        let network = self.target.network.bridge().gateway.trunc();
        let node = self.target.node.as_str();
        let wanted = {
            let local = &*self.target.guests.borrow();
            let remote = &**self.target.remote.borrow();
            let cluster =
                plan::Cluster { policies, namespaces, pods, local, remote, node, network };
            plan::policies(&cluster)
        };
        if self.enforced.as_ref() == Some(&wanted) {
            return true;
        }
        match self.target.network.restrict(wanted.clone()).await {
            Ok(()) => {
                self.enforced = Some(wanted);
                true
            }
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot enforce network policies");
                self.enforced = None;
                false
            }
        }
    }
}
