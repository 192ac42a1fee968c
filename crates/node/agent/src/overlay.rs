//! Guests of other nodes, made reachable for the guests of this node and the node itself.
//!
//! Follows Nodes and the claims of addresses (`hci::guest_network`), and hands what `plan` makes of
//! them to the node's network (`net::Network::connect`), its name server, and those who need to know
//! guests of other nodes: services and policies. Nothing is handed over before both lists have been
//! read: a restart leaves everything as it is.

mod plan;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use futures_util::stream;
use hci::guest_network::{AddressClaim, SELECTOR};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::IPAddress;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{Dns, GuestOverlay, Network, ServiceRecords};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::guest_name::names_below;
use crate::known_objects::KnownObjects;
use crate::retry::Retries;
use plan::NodeRecord;

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to change the network: the pause doubles while the same change fails.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// As many events as are taken together.
const BATCH: usize = 256;

/// Guests of other nodes on the network of this one, by address.
pub(crate) type RemoteGuests = BTreeMap<Ipv4Addr, RemoteGuest>;

/// A guest of another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteGuest {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) subdomain: Option<String>,
}

/// Tunnel and routes to guests of other nodes.
pub(crate) struct OverlayTarget {
    pub(crate) node: String,
    pub(crate) network: Network,
    pub(crate) dns: Option<Dns>,
    pub(crate) remote: watch::Sender<Arc<RemoteGuests>>,
}

/// Runs until `stop`; routes and tunnels stay.
pub(crate) async fn run(client: Client, target: OverlayTarget, mut stop: Stop) {
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let nodes = nodes.map(|event| OverlayChange::Node(Box::new(event)));
    let claimed = watcher::Config::default().labels(SELECTOR);
    let claims = watcher(Api::<IPAddress>::all(client), claimed);
    let claims = claims.map(|event| OverlayChange::Claim(Box::new(event)));
    let mut changes = std::pin::pin!(stream::select(nodes, claims).ready_chunks(BATCH));
    let mut follower = OverlayWatcher::new(target);
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

/// An event of one of the watches; boxed, since they differ much in size.
enum OverlayChange {
    Node(Box<Result<Event<Node>, watcher::Error>>),
    Claim(Box<Result<Event<IPAddress>, watcher::Error>>),
}

/// Known objects of the cluster, and the last state applied to the node.
struct OverlayWatcher {
    target: OverlayTarget,
    nodes: KnownObjects<NodeRecord>,
    claims: KnownObjects<AddressClaim>,
    connected: Option<GuestOverlay>,
    retries: Retries<(), GuestOverlay>,
    is_failing: bool,
}

impl OverlayWatcher {
    fn new(target: OverlayTarget) -> Self {
        Self {
            target,
            nodes: KnownObjects::default(),
            claims: KnownObjects::default(),
            connected: None,
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: OverlayChange) -> bool {
        let outcome = match change {
            OverlayChange::Node(event) => {
                (*event).map(|event| self.nodes.take(event, NodeRecord::read))
            }
            OverlayChange::Claim(event) => {
                (*event).map(|event| self.claims.take(event, read_claim))
            }
        };
        let Err(failure) = outcome else {
            self.is_failing = false;
            return false;
        };
        if self.is_failing {
            debug!(error = %Chain(&failure), "still cannot watch guests of other nodes");
        } else {
            warn!(error = %Chain(&failure), "cannot watch guests of other nodes");
        }
        self.is_failing = true;
        true
    }

    /// Makes the network follow; returns when to try again.
    async fn hand_over(&mut self) -> Option<Duration> {
        let (Some(nodes), Some(claims)) = (self.nodes.all(), self.claims.all()) else {
            return None;
        };
        let network = self.target.network.bridge().gateway.trunc();
        let (wanted, remote) = plan::overlay(&self.target.node, network, nodes, claims);
        if wanted == GuestOverlay::Unknown || self.connected.as_ref() == Some(&wanted) {
            self.publish(remote);
            return None;
        }
        if let Some(pause) = self.retries.pause(&(), &wanted, Instant::now()) {
            self.publish(remote);
            return Some(pause);
        }
        if let (GuestOverlay::Connected(overlay), Some(GuestOverlay::Alone) | None) =
            (&wanted, &self.connected)
        {
            info!(nodes = overlay.peers.len(), "guests of other nodes can be reached");
        }
        let pause = match self.target.network.connect(wanted.clone()).await {
            Ok(()) => {
                self.retries.succeed(&());
                self.connected = Some(wanted);
                None
            }
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot reach guests of other nodes");
                self.connected = None;
                Some(self.retries.fail((), wanted, Instant::now()))
            }
        };
        // After the routes, so that no service leads to a guest that cannot be reached yet.
        self.publish(remote);
        pause
    }

    fn publish(&self, remote: RemoteGuests) {
        if **self.target.remote.borrow() == remote {
            return;
        }
        if let Some(dns) = &self.target.dns {
            let records = records(&remote);
            dns.modify(|names| names.replace_remote(records));
        }
        self.target.remote.send_replace(Arc::new(remote));
    }
}

/// The claim of a guest's address that an object is, if it is one.
pub(crate) fn read_claim(object: IPAddress) -> Option<AddressClaim> {
    AddressClaim::read(&serde_json::to_value(object).ok()?)
}

fn records(remote: &RemoteGuests) -> ServiceRecords {
    let mut records = ServiceRecords::default();
    for (address, guest) in remote {
        for name in names_below(&guest.namespace, &guest.hostname, guest.subdomain.as_deref()) {
            let added = records.insert_address(&name, *address);
            if let Err(failure) = added.and_then(|()| records.insert_pointer(*address, &name)) {
                debug!(name, error = %failure, "cannot serve a name");
            }
        }
    }
    records
}
