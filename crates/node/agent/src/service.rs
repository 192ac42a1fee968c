//! Services and their endpoints, made reachable for the guests of this node and the node itself.
//!
//! Follows Services and EndpointSlices of all namespaces, and hands what `plan` makes of them to
//! the node's network (`net::Network::serve`) and name server. Changes that arrive together are
//! handed over together, and nothing is handed over before both lists have been read, so that a
//! restart takes no service away.

mod object;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{Dns, Network, ServiceRecords};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::known_objects::{KnownObjects, read_all};
use crate::overlay::RemoteGuests;
use crate::retry::Retries;
use object::{ServiceRecord, SliceRecord};
pub(crate) use plan::ServiceNode;

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to change the network: the pause doubles while the same change fails.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// As many events as are taken together.
const BATCH: usize = 256;

/// Where services are made reachable.
pub(crate) struct ServiceTarget {
    pub(crate) network: Network,
    pub(crate) dns: Option<Dns>,
    /// Guests of other nodes that can be reached.
    pub(crate) remote: watch::Receiver<Arc<RemoteGuests>>,
}

/// The services of a snapshot of objects, as a node serves them.
pub(crate) fn services_of(
    services: &[Value],
    slices: &[Value],
    node: &ServiceNode,
    remote: &RemoteGuests,
) -> Vec<net::Service> {
    let services = read_all(services, ServiceRecord::read);
    plan::services(&services, &read_all(slices, SliceRecord::read), node, remote)
}

/// Runs until `stop`; routes and tunnels stay.
pub(crate) async fn run(client: Client, node: ServiceNode, target: ServiceTarget, mut stop: Stop) {
    let config = watcher::Config::default;
    let services = watcher(Api::<Service>::all(client.clone()), config());
    let services = services.map(|event| ServiceChange::Service(Box::new(event)));
    let slices = watcher(Api::<EndpointSlice>::all(client), config());
    let slices = slices.map(|event| ServiceChange::Slice(Box::new(event)));
    let mut changes = std::pin::pin!(stream::select(services, slices).ready_chunks(BATCH));
    let mut remote = target.remote.clone();
    let mut follower = ServiceWatcher::new(node, target);
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

async fn pause(stop: &mut Stop) {
    tokio::select! {
        () = tokio::time::sleep(RETRY) => {}
        () = stop.requested() => {}
    }
}

/// An event of a watch; boxed, since the two differ much in size.
enum ServiceChange {
    Service(Box<Result<Event<Service>, watcher::Error>>),
    Slice(Box<Result<Event<EndpointSlice>, watcher::Error>>),
}

/// Known objects of the cluster, and the last state applied to the node.
struct ServiceWatcher {
    node: ServiceNode,
    target: ServiceTarget,
    services: KnownObjects<ServiceRecord>,
    slices: KnownObjects<SliceRecord>,
    served: Option<Vec<net::Service>>,
    retries: Retries<(), Vec<net::Service>>,
    named: Option<ServiceRecords>,
    is_failing: bool,
}

impl ServiceWatcher {
    fn new(node: ServiceNode, target: ServiceTarget) -> Self {
        Self {
            node,
            target,
            services: KnownObjects::default(),
            slices: KnownObjects::default(),
            served: None,
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            named: None,
            is_failing: false,
        }
    }

    /// Notes a change; says whether it was a failure.
    fn take(&mut self, change: ServiceChange) -> bool {
        let outcome = match change {
            ServiceChange::Service(event) => {
                (*event).map(|event| self.services.take(event, ServiceRecord::read))
            }
            ServiceChange::Slice(event) => {
                (*event).map(|event| self.slices.take(event, SliceRecord::read))
            }
        };
        let Err(failure) = outcome else {
            self.is_failing = false;
            return false;
        };
        if self.is_failing {
            debug!(error = %Chain(&failure), "still cannot watch services");
        } else {
            warn!(error = %Chain(&failure), "cannot watch services");
        }
        self.is_failing = true;
        true
    }

    /// Makes the network and the name server follow; returns when to try again.
    async fn hand_over(&mut self) -> Option<Duration> {
        let (Some(services), Some(slices)) = (self.services.all(), self.slices.all()) else {
            return None;
        };
        let records = plan::records(services, slices);
        if let Some(dns) = &self.target.dns
            && self.named.as_ref() != Some(&records)
        {
            dns.modify(|names| names.replace_records(records.clone()));
            self.named = Some(records);
        }
        let remote = Arc::clone(&*self.target.remote.borrow());
        let wanted = plan::services(services, slices, &self.node, &remote);
        if self.served.as_ref() == Some(&wanted) {
            return None;
        }
        if let Some(pause) = self.retries.pause(&(), &wanted, Instant::now()) {
            return Some(pause);
        }
        match self.target.network.serve(wanted.clone()).await {
            Ok(()) => {
                self.retries.succeed(&());
                self.served = Some(wanted);
                None
            }
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot make services reachable");
                self.served = None;
                Some(self.retries.fail((), wanted, Instant::now()))
            }
        }
    }
}
