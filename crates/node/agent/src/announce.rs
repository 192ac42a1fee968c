//! Announces the addresses of load balancers that this node holds the leases of
//! (`hci::announcement`), and reports the subnets in which it could.
//!
//! An address is on an interface only after its lease has been renewed, and for the rest of the
//! lease: the kernel removes it then, also when this process is gone. A restart leaves addresses
//! as they are.

mod plan;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use base::{Chain, Tasks, clock};
use client::Fault;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use hci::announcement::{AnnouncementLease, NAMESPACE, SELECTOR, SUBNETS, subnets_text};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{AddressUse, AnnounceLink, Announcer, ObservedAnnouncements};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::{is_conflict, merge};
use crate::known_objects::KnownObjects;
use plan::AnnounceStep;

/// How often leases are checked while this node holds any.
const TICK: Duration = Duration::from_millis(500);
/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// How long a renewal may take.
const RENEW_TIMEOUT: Duration = Duration::from_secs(3);
/// The most events that are handled together.
const BATCH: usize = 256;

/// How many gratuitous ARP announcements are sent for an address that this node has taken.
const GRATUITOUS_ARPS: u8 = 3;

/// An address that this node announces.
#[derive(Debug, Clone, Copy)]
struct HeldAddress {
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
    /// How many gratuitous ARP announcements were sent.
    announced: u8,
}

/// An event of one of the watches; boxed, since they differ much in size.
enum AnnounceChange {
    Node(Box<Result<Event<Node>, watcher::Error>>),
    Lease(Box<Result<Event<Lease>, watcher::Error>>),
}

/// Runs until the tasks are stopped; addresses stay until their leases end.
pub(crate) async fn run(client: Client, node: String, tasks: Tasks) {
    let announcer = match Announcer::start(AddressUse::LoadBalancer, &tasks) {
        Ok(announcer) => announcer,
        Err(failure) => {
            warn!(error = %Chain(&failure), "addresses cannot be announced by this node");
            return;
        }
    };
    let mut stop = tasks.stop_signal();
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let nodes = watcher(Api::<Node>::all(client.clone()), own);
    let nodes = nodes.map(|event| AnnounceChange::Node(Box::new(event)));
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    let leases = watcher(leases, watcher::Config::default().labels(SELECTOR));
    let leases = leases.map(|event| AnnounceChange::Lease(Box::new(event)));
    let mut changes = std::pin::pin!(stream::select(nodes, leases).ready_chunks(BATCH));
    let mut links = announcer.changes();
    let mut reconciler = AnnounceReconciler::new(client, node, announcer);
    let mut wait = None;
    loop {
        tokio::select! {
            batch = changes.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for change in batch {
                    failed |= reconciler.take(change);
                }
                if failed {
                    tokio::select! {
                        () = tokio::time::sleep(TICK) => {}
                        () = stop.requested() => return,
                    }
                }
            }
            changed = links.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(wait.unwrap_or(RETRY)), if wait.is_some() => {}
            () = stop.requested() => return,
        }
        wait = reconciler.reconcile().await;
    }
}

struct AnnounceReconciler {
    client: Client,
    node: String,
    announcer: Announcer,
    /// The subnets that this node's object shows.
    nodes: KnownObjects<String>,
    leases: KnownObjects<AnnouncementLease>,
    held: BTreeMap<Ipv4Addr, HeldAddress>,
    is_failing: bool,
}

impl AnnounceReconciler {
    fn new(client: Client, node: String, announcer: Announcer) -> Self {
        Self {
            client,
            node,
            announcer,
            nodes: KnownObjects::default(),
            leases: KnownObjects::default(),
            held: BTreeMap::new(),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: AnnounceChange) -> bool {
        let outcome = match change {
            AnnounceChange::Node(event) => {
                (*event).map(|event| self.nodes.take(event, read_subnets))
            }
            AnnounceChange::Lease(event) => {
                (*event).map(|event| self.leases.take(event, read_lease))
            }
        };
        let Err(failure) = outcome else { return false };
        debug!(error = %Chain(&failure), "cannot watch the leases of addresses");
        true
    }

    /// Follows the leases; returns when to look again if nothing happens.
    async fn reconcile(&mut self) -> Option<Duration> {
        let leases = self.leases.all()?.values().cloned().collect::<Vec<_>>();
        let seen = match self.announcer.observe().await {
            Ok(seen) => seen,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot read the addresses of this node");
                return Some(RETRY);
            }
        };
        // An address that the kernel has removed has to be announced again.
        self.held.retain(|address, _| seen.announced.iter().any(|(own, _)| own == address));
        let held = self.held.iter().map(|(address, held)| (*address, held.renewed.elapsed()));
        let since_renewal: BTreeMap<Ipv4Addr, Duration> = held.collect();
        let steps = plan::steps(&self.node, &leases, &seen, &since_renewal);
        let mut renewals = Vec::new();
        for step in steps {
            match step {
                AnnounceStep::Withdraw { address, index } => self.withdraw(address, index).await,
                AnnounceStep::GiveBack { lease } => self.release_lease(&lease).await,
                AnnounceStep::Renew { lease, link } => renewals.push((lease, link)),
            }
        }
        let sent = renewals.into_iter().map(|(lease, link)| {
            let renewing = renew(&self.client, &self.node, lease.clone());
            async move { (lease.address, link, renewing.await) }
        });
        let ended = join_all(sent).await;
        for (address, link, renewed) in ended {
            self.announce(address, &link, renewed).await;
        }
        let is_reported = self.report(&seen).await;
        let is_holder = leases.iter().any(|lease| lease.holder == self.node);
        if is_holder { Some(TICK) } else { (!is_reported).then_some(RETRY) }
    }

    /// Puts an address onto its interface after a renewal.
    async fn announce(
        &mut self,
        address: Ipv4Addr,
        link: &AnnounceLink,
        renewed: Result<(Instant, Lease), RenewError>,
    ) {
        let (sent, lease) = match renewed {
            Ok(renewed) => renewed,
            Err(failure) => {
                debug!(%address, error = %Chain(&failure), "cannot renew the lease of an address");
                return;
            }
        };
        self.leases.take(Event::Apply(lease), read_lease);
        let Some(life) = plan::lifetime(sent.elapsed()) else { return };
        if let Err(failure) = self.announcer.hold(address, link, life).await {
            warn!(error = %Chain(&failure), "cannot announce an address");
            return;
        }
        let mut announced = self.held.get(&address).map_or(0, |held| held.announced);
        if announced == 0 {
            info!(%address, interface = %link.name, "announces an address");
        }
        if announced < GRATUITOUS_ARPS {
            announced += 1;
            if let Err(failure) = self.announcer.tell_neighbours(address, link) {
                warn!(error = %Chain(&failure), "cannot tell neighbours of an address");
            }
        }
        self.held.insert(address, HeldAddress { renewed: sent, announced });
    }

    async fn withdraw(&mut self, address: Ipv4Addr, index: u32) {
        self.held.remove(&address);
        match self.announcer.withdraw(address, index).await {
            Ok(()) => info!(%address, "does not announce an address any more"),
            Err(failure) => warn!(error = %Chain(&failure), "cannot withdraw an address"),
        }
    }

    /// Releases a lease. Called only after the address was removed from all interfaces.
    async fn release_lease(&mut self, lease: &AnnouncementLease) {
        self.held.remove(&lease.address);
        let is_gone =
            self.announcer.observe().await.is_ok_and(|seen| {
                seen.announced.iter().all(|(address, _)| *address != lease.address)
            });
        if !is_gone {
            return;
        }
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        let patch = json!({
            "metadata": {"resourceVersion": lease.resource_version},
            "spec": {"holderIdentity": null},
        });
        let name = hci::announcement::lease_name(lease.address);
        match merge(&leases, &name, &patch).await {
            Ok(lease) => self.leases.take(Event::Apply(lease), read_lease),
            Err(failure) if is_conflict(&failure) => {}
            Err(failure) => {
                debug!(error = %Chain(&Fault(failure)), "cannot give back the lease of an address");
            }
        }
    }

    /// Writes the subnets of this node into its object; returns whether they are there.
    async fn report(&mut self, seen: &ObservedAnnouncements) -> bool {
        let Some(nodes) = self.nodes.all() else { return true };
        let Some(shown) = nodes.values().next() else { return true };
        let wanted = subnets_text(&seen.subnets());
        if *shown == wanted {
            return true;
        }
        let patch = json!({"metadata": {"annotations": {SUBNETS: wanted}}});
        let api = Api::<Node>::all(self.client.clone());
        match merge(&api, &self.node, &patch).await {
            Ok(node) => {
                self.nodes.take(Event::Apply(node), read_subnets);
                self.is_failing = false;
                true
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(error = %Chain(&Fault(failure)), "cannot report the subnets of this node");
                }
                false
            }
        }
    }
}

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error("server does not answer")]
    Timeout,
    #[error("lease is refused")]
    Refused(#[source] Fault),
}

/// Renews a lease, unless another writer has changed it; returns when the request was sent.
async fn renew(
    client: &Client,
    node: &str,
    lease: AnnouncementLease,
) -> Result<(Instant, Lease), RenewError> {
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    let patch = json!({
        "metadata": {"resourceVersion": lease.resource_version},
        "spec": {"holderIdentity": node, "renewTime": clock::rfc3339_micro(clock::now())},
    });
    let name = hci::announcement::lease_name(lease.address);
    let sent = Instant::now();
    match tokio::time::timeout(RENEW_TIMEOUT, merge(&leases, &name, &patch)).await {
        Ok(Ok(lease)) => Ok((sent, lease)),
        Ok(Err(failure)) => Err(RenewError::Refused(Fault(failure))),
        Err(_) => Err(RenewError::Timeout),
    }
}

fn read_lease(lease: Lease) -> Option<AnnouncementLease> {
    AnnouncementLease::read(&serde_json::to_value(lease).ok()?)
}

/// None is the same as an empty list.
fn read_subnets(node: Node) -> Option<String> {
    Some(node.metadata.annotations.unwrap_or_default().remove(SUBNETS).unwrap_or_default())
}
