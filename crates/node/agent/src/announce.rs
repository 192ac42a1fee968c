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
use crate::retry::{Retries, sooner};
use plan::AnnounceStep;

/// How often leases are checked while this node holds any.
const TICK: Duration = Duration::from_millis(500);
/// Between two attempts to read the addresses of this node, or to report its subnets: the pause
/// doubles while the same fails.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Between two attempts to renew or give back a lease that the server refuses, or whose address
/// cannot be put onto its interface; the first pause is a tick.
const LAST_STEP_RETRY: Duration = Duration::from_secs(5);
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
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
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
    /// Steps for a lease that failed, with the interface of a renewal.
    steps: Retries<Ipv4Addr, Option<u32>>,
    observations: Retries<(), ()>,
    reports: Retries<(), String>,
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
            steps: Retries::new(TICK, LAST_STEP_RETRY),
            observations: Retries::new(FIRST_RETRY, LAST_RETRY),
            reports: Retries::new(FIRST_RETRY, LAST_RETRY),
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

    /// Follows the leases; returns when to check again if nothing happens.
    async fn reconcile(&mut self) -> Option<Duration> {
        let leases = self.leases.all()?.values().cloned().collect::<Vec<_>>();
        if let Some(pause) = self.observations.pause(&(), &(), Instant::now()) {
            return Some(pause);
        }
        let seen = match self.announcer.observe().await {
            Ok(seen) => seen,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot read the addresses of this node");
                return Some(self.observations.fail((), (), Instant::now()));
            }
        };
        self.observations.succeed(&());
        self.follow(&leases, &seen).await;
        let wait = self.report(&seen).await;
        let is_holder = leases.iter().any(|lease| lease.holder == self.node);
        if is_holder { sooner(wait, Some(TICK)) } else { wait }
    }

    /// Carries out the steps that the leases require.
    async fn follow(&mut self, leases: &[AnnouncementLease], seen: &ObservedAnnouncements) {
        // An address that the kernel has removed has to be announced again.
        self.held.retain(|address, _| seen.announced.iter().any(|(own, _)| own == address));
        let held = self.held.iter().map(|(address, held)| (*address, held.renewed.elapsed()));
        let since_renewal: BTreeMap<Ipv4Addr, Duration> = held.collect();
        let steps = plan::steps(&self.node, leases, seen, &since_renewal);
        self.steps.retain(|address| leases.iter().any(|lease| lease.address == *address));
        let mut renewals = Vec::new();
        for step in steps {
            match step {
                AnnounceStep::Withdraw { address, index } => self.withdraw(address, index).await,
                AnnounceStep::GiveBack { lease } => {
                    if self.steps.pause(&lease.address, &None, Instant::now()).is_none() {
                        self.release_lease(&lease).await;
                    }
                }
                AnnounceStep::Renew { lease, link } => {
                    let index = Some(link.index);
                    if self.steps.pause(&lease.address, &index, Instant::now()).is_none() {
                        renewals.push((lease, link));
                    }
                }
            }
        }
        let sent = renewals.into_iter().map(|(lease, link)| {
            let renewing = renew(&self.client, &self.node, lease.clone());
            async move { (lease.address, link, renewing.await) }
        });
        let ended = join_all(sent).await;
        for (address, link, renewed) in ended {
            // While the server does not answer, each tick may be the last that saves the lease.
            let is_outage = matches!(renewed, Err(RenewError::Timeout | RenewError::Outage(_)));
            if self.announce(address, &link, renewed).await {
                self.steps.succeed(&address);
            } else if !is_outage {
                self.steps.fail(address, Some(link.index), Instant::now());
            }
        }
    }

    /// Puts an address onto its interface after a renewal; returns whether it is there.
    async fn announce(
        &mut self,
        address: Ipv4Addr,
        link: &AnnounceLink,
        renewed: Result<(Instant, Lease), RenewError>,
    ) -> bool {
        let (sent, lease) = match renewed {
            Ok(renewed) => renewed,
            Err(failure) => {
                debug!(%address, error = %Chain(&failure), "cannot renew the lease of an address");
                return false;
            }
        };
        self.leases.take(Event::Apply(lease), read_lease);
        let Some(life) = plan::lifetime(sent.elapsed()) else { return false };
        if let Err(failure) = self.announcer.hold(address, link, life).await {
            warn!(error = %Chain(&failure), "cannot announce an address");
            return false;
        }
        let mut announced = self.held.get(&address).map_or(0, |held| held.announced);
        if announced == 0 {
            info!(%address, interface = %link.name, "announces an address");
        }
        if announced < GRATUITOUS_ARPS {
            announced += 1;
            if let Err(failure) = self.announcer.send_gratuitous_arp(address, link) {
                warn!(error = %Chain(&failure), "cannot announce an address to neighbours");
            }
        }
        self.held.insert(address, HeldAddress { renewed: sent, announced });
        true
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
            Ok(returned) => {
                self.steps.succeed(&lease.address);
                self.leases.take(Event::Apply(returned), read_lease);
            }
            Err(failure) => {
                self.steps.fail(lease.address, None, Instant::now());
                if is_conflict(&failure) {
                    return;
                }
                debug!(error = %Chain(&Fault(failure)), "cannot give back the lease of an address");
            }
        }
    }

    /// Writes the subnets of this node into its object; returns when to try again.
    async fn report(&mut self, seen: &ObservedAnnouncements) -> Option<Duration> {
        let shown = self.nodes.all()?.values().next()?;
        let wanted = subnets_text(&seen.subnets());
        if *shown == wanted {
            return None;
        }
        if let Some(pause) = self.reports.pause(&(), &wanted, Instant::now()) {
            return Some(pause);
        }
        let patch = json!({"metadata": {"annotations": {SUBNETS: wanted}}});
        let api = Api::<Node>::all(self.client.clone());
        match merge(&api, &self.node, &patch).await {
            Ok(node) => {
                self.nodes.take(Event::Apply(node), read_subnets);
                self.is_failing = false;
                self.reports.succeed(&());
                None
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(error = %Chain(&Fault(failure)), "cannot report the subnets of this node");
                }
                Some(self.reports.fail((), wanted, Instant::now()))
            }
        }
    }
}

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error("server does not answer")]
    Timeout,
    #[error("server cannot be reached or has failed")]
    Outage(#[source] Fault),
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
        Ok(Err(failure)) => match &failure {
            kube::Error::Api(status) if (400..500).contains(&status.code) => {
                Err(RenewError::Refused(Fault(failure)))
            }
            _ => Err(RenewError::Outage(Fault(failure))),
        },
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

#[cfg(test)]
mod tests;
