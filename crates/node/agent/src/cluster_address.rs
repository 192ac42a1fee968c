//! The virtual address of the cluster: people reach the API there, whichever management node serves
//! it. One node has it at a time, by a lease that it renews through its own API server.
//!
//! ```text
//!   last renewal ──3 s──► the holder gives the address up ──3 s──► another node may take it
//! ```
//!
//! The address is on an interface for a few seconds only and prolonged while the lease is held: if
//! this process dies or hangs, the kernel removes the address before another node may take it. Before
//! an address is taken, ARP shows whether another host has it; then it is left alone.

mod plan;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Chain, Tasks};
use client::{Election, Term, Timing, campaign};
use hci::announcement::ADDRESS;
use hci::cluster::{VIP_LEASE, VIP_NAMESPACE};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use net::{AddressUse, AnnounceLink, Announcer};
use serde_json::json;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use self::plan::{AddressObstacle, AddressStep};
use crate::api::merge;

/// A holder gives up well before another may take the address; renewals are cheap.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(6),
    give_up: Duration::from_secs(3),
    renew: Duration::from_secs(1),
    retry: Duration::from_secs(1),
};
/// How long the kernel keeps the address without this process. It removes addresses up to a second
/// and a quarter late.
const LIFETIME: Duration = Duration::from_secs(3);
/// How often the address is prolonged.
const TICK: Duration = Duration::from_millis(500);
/// After an obstacle, which an administrator has to remove.
const OBSTACLE_DELAY: Duration = Duration::from_secs(10);

/// The address, and the node that wants to have it.
#[derive(Debug, Clone)]
pub struct ClusterAddress {
    pub address: Ipv4Addr,
    /// Unique among those that want it.
    pub node: String,
}

impl ClusterAddress {
    /// Runs for the lease until the tasks are stopped; the address is given up then. `client` leads
    /// to the API server of this node and to no other: a node without a majority cannot renew.
    pub async fn run(self, client: Client, tasks: Tasks) {
        let announcer = match Announcer::start(AddressUse::Cluster, &tasks) {
            Ok(announcer) => announcer,
            Err(failure) => {
                warn!(error = %Chain(&failure), "this node cannot have the virtual address");
                return;
            }
        };
        let holder = AddressHolder {
            own: self,
            announcer,
            client,
            is_unable: Notify::new(),
            is_reported: AtomicBool::new(false),
        };
        let mut stop = tasks.stop_signal();
        loop {
            let election = Election {
                namespace: VIP_NAMESPACE.to_owned(),
                name: VIP_LEASE.to_owned(),
                identity: holder.own.node.clone(),
                timing: TIMING,
            };
            let running = campaign(holder.client.clone(), election, tasks.stop_signal(), |term| {
                holder.hold(term)
            });
            tokio::select! {
                () = running => return,
                // Without a release: another node takes the lease when it has ended.
                () = holder.is_unable.notified() => {}
            }
            tokio::select! {
                () = tokio::time::sleep(OBSTACLE_DELAY) => {}
                () = stop.requested() => return,
            }
        }
    }
}

struct AddressHolder {
    own: ClusterAddress,
    announcer: Announcer,
    client: Client,
    /// The term cannot be used; another node may be able to.
    is_unable: Notify,
    /// Whether the obstacle was logged; it is once, until the address was here again.
    is_reported: AtomicBool,
}

impl AddressHolder {
    /// Has the address while the term lasts.
    async fn hold(&self, mut term: Term) {
        let work = async {
            tokio::join!(self.note(), self.announce());
        };
        tokio::select! {
            () = work => {}
            () = term.over() => {}
        }
        self.withdraw().await;
    }

    /// Writes the address into the lease, for its readers.
    async fn note(&self) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), VIP_NAMESPACE);
        let patch = json!({"metadata": {"annotations": {ADDRESS: self.own.address.to_string()}}});
        if let Err(failure) = merge(&leases, VIP_LEASE, &patch).await {
            debug!(error = %Chain(&failure), "cannot note the virtual address");
        }
    }

    /// Prolongs the address until something is in the way.
    async fn announce(&self) {
        let address = self.own.address;
        let mut ticks = 0;
        loop {
            let seen = match self.announcer.observe().await {
                Ok(seen) => seen,
                Err(failure) => return self.give_up(&Chain(&failure).to_string()),
            };
            let (link, is_new) = match plan::step(address, &seen) {
                AddressStep::Obstacle(obstacle) => return self.give_up(obstacle.text()),
                AddressStep::Take(link) if self.is_taken(link).await => {
                    return self.give_up(AddressObstacle::Taken.text());
                }
                AddressStep::Take(link) => (link, true),
                AddressStep::Prolong(link) => (link, false),
            };
            if let Err(failure) = self.announcer.hold(address, link, LIFETIME).await {
                return self.give_up(&Chain(&failure).to_string());
            }
            if is_new {
                info!(%address, interface = %link.name, "this node has the virtual address");
                self.is_reported.store(false, Ordering::Relaxed);
            }
            self.send_arp(link, ticks);
            ticks = ticks.saturating_add(1);
            tokio::time::sleep(TICK).await;
        }
    }

    /// Whether another station has the address. If that cannot be found out, the lease is what counts.
    async fn is_taken(&self, link: &AnnounceLink) -> bool {
        match self.announcer.probe(self.own.address, link).await {
            Ok(found) => found.is_some(),
            Err(failure) => {
                debug!(error = %Chain(&failure), "cannot ask for the virtual address");
                false
            }
        }
    }

    /// Leaves the address to another node for a while.
    fn give_up(&self, reason: &str) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            warn!(address = %self.own.address, reason, "cannot have the virtual address");
        }
        self.is_unable.notify_one();
    }

    fn send_arp(&self, link: &AnnounceLink, ticks: u32) {
        if plan::is_announced(ticks)
            && let Err(failure) = self.announcer.send_gratuitous_arp(self.own.address, link)
        {
            debug!(error = %Chain(&failure), "cannot announce the virtual address to neighbours");
        }
    }

    /// Removes the address from all interfaces; where that fails, the kernel removes it shortly
    /// after.
    async fn withdraw(&self) {
        let Ok(seen) = self.announcer.observe().await else { return };
        for (address, index) in seen.announced {
            match self.announcer.withdraw(address, index).await {
                Ok(()) => info!(%address, "this node does not have the virtual address any more"),
                Err(failure) => warn!(error = %Chain(&failure), "cannot withdraw an address"),
            }
        }
    }
}
