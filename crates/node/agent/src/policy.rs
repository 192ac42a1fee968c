//! NetworkPolicies, ClusterNetworkPolicies and the isolation of namespaces, enforced for the guests of this node.
//!
//! Follows these policies, Namespaces and Pods of all namespaces, and the guests that this node
//! connects, and hands what `plan` makes of them to the node's network (`net::Network::restrict`).
//! Nothing is handed over before all lists have been read: a restart leaves the rules in force.

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
use futures_util::stream;
use hci::cluster_network_policy as cluster_policy;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::Network;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::known_objects::KnownObjects;
use crate::overlay::RemoteGuests;
use crate::retry::Retries;
use cluster_object::ClusterPolicyRecord;
use object::{NamespaceRecord, PodRecord, PolicyRecord};
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
}

/// Runs until `stop`; the rules in force stay so.
pub(crate) async fn run(client: Client, target: PolicyTarget, mut stop: Stop) {
    let config = watcher::Config::default;
    let policies = watcher(Api::<NetworkPolicy>::all(client.clone()), config());
    let policies = policies.map(|event| PolicyChange::Policy(Box::new(event)));
    let kind = cluster_policy_kind();
    let tiers = watcher(Api::<DynamicObject>::all_with(client.clone(), &kind), config());
    let tiers = tiers.map(|event| PolicyChange::ClusterPolicy(Box::new(event)));
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), config());
    let namespaces = namespaces.map(|event| PolicyChange::Namespace(Box::new(event)));
    let pods = watcher(Api::<Pod>::all(client), config());
    let pods = pods.map(|event| PolicyChange::Pod(Box::new(event)));
    let changes = stream::select(stream::select(policies, tiers), stream::select(namespaces, pods));
    let mut changes = std::pin::pin!(changes.ready_chunks(BATCH));
    let (mut guests, mut remote) = (target.guests.clone(), target.remote.clone());
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
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                wait = follower.hand_over().await;
            }
            () = stop.requested() => return,
        }
    }
}

fn cluster_policy_kind() -> ApiResource {
    let kind =
        GroupVersionKind::gvk(cluster_policy::GROUP, cluster_policy::VERSION, cluster_policy::KIND);
    ApiResource::from_gvk_with_plural(&kind, cluster_policy::PLURAL)
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
    ClusterPolicy(Box<Result<Event<DynamicObject>, watcher::Error>>),
    Namespace(Box<Result<Event<Namespace>, watcher::Error>>),
    Pod(Box<Result<Event<Pod>, watcher::Error>>),
}

/// The known objects of the cluster, and the policies that the node enforces.
struct PolicyWatcher {
    target: PolicyTarget,
    policies: KnownObjects<PolicyRecord>,
    cluster_policies: KnownObjects<ClusterPolicyRecord>,
    namespaces: KnownObjects<NamespaceRecord>,
    pods: KnownObjects<PodRecord>,
    enforced: Option<net::Policies>,
    retries: Retries<(), net::Policies>,
    is_failing: bool,
}

impl PolicyWatcher {
    fn new(target: PolicyTarget) -> Self {
        Self {
            target,
            policies: KnownObjects::default(),
            cluster_policies: KnownObjects::default(),
            namespaces: KnownObjects::default(),
            pods: KnownObjects::default(),
            enforced: None,
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: PolicyChange) -> bool {
        let outcome = match change {
            PolicyChange::Policy(event) => {
                (*event).map(|event| self.policies.take(event, PolicyRecord::read))
            }
            PolicyChange::ClusterPolicy(event) => {
                (*event).map(|event| self.cluster_policies.take(event, ClusterPolicyRecord::read))
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

    /// Makes the network follow; returns when to try again.
    async fn hand_over(&mut self) -> Option<Duration> {
        let (Some(policies), Some(cluster_policies)) =
            (self.policies.all(), self.cluster_policies.all())
        else {
            return None;
        };
        let (Some(namespaces), Some(pods)) = (self.namespaces.all(), self.pods.all()) else {
            return None;
        };
        let network = self.target.network.bridge().gateway.trunc();
        let node = self.target.node.as_str();
        let wanted = {
            let local = &*self.target.guests.borrow();
            let remote = &**self.target.remote.borrow();
            plan::policies(&plan::Cluster {
                policies,
                cluster_policies,
                namespaces,
                pods,
                local,
                remote,
                node,
                network,
            })
        };
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
