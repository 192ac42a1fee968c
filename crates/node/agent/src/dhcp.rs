//! DHCP for the guests of this node on networks with an IPPool.
//!
//! Follows the pools of all namespaces and the interfaces that this node connects to bridges. The
//! leases that `plan` makes of them are given on the guests' own taps (`net::PortDhcp`), and rules
//! of the node's network keep those requests from the wire. Every node answers for its own guests
//! from the same record, so that there is no server whose loss would matter to guests of other
//! nodes. Known leases stay in force while the API server cannot be reached.

mod plan;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use client::Fault;
use futures_util::StreamExt as _;
use hci::dhcp::{GROUP, SERVER_KEY, SERVER_READY, VERSION};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{LinkName, Network, PortDhcp, PortLease};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::merge;
use crate::known_objects::KnownObjects;
use crate::retry::Retries;
use plan::PoolRecord;
pub(crate) use plan::{BridgedInterface, BridgedInterfaces};

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to change the network or to write the node: the pause doubles while the
/// same fails.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// As many events as are taken together.
const BATCH: usize = 256;

/// Where requests are answered.
pub(crate) struct DhcpTarget {
    pub(crate) node: String,
    pub(crate) network: Network,
    pub(crate) interfaces: watch::Receiver<BridgedInterfaces>,
}

/// Runs until `tasks` are stopped.
pub(crate) async fn run(client: Client, target: DhcpTarget, tasks: Tasks) {
    let mut stop: Stop = tasks.stop_signal();
    let kind = GroupVersionKind::gvk(GROUP, VERSION, "IPPool");
    let kind = ApiResource::from_gvk_with_plural(&kind, "ippools");
    let pools = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let pools = watcher(pools, watcher::Config::default());
    let mut pools = std::pin::pin!(pools.ready_chunks(BATCH));
    let mut interfaces = target.interfaces.clone();
    let mut server = DhcpServers::new(client, target, &tasks);
    let mut wait = None;
    loop {
        tokio::select! {
            batch = pools.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for event in batch {
                    failed |= server.take(event);
                }
                if failed {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.requested() => return,
                    }
                }
            }
            changed = interfaces.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            () = stop.requested() => return,
        }
        wait = server.hand_over().await;
    }
}

/// Records that a node without networks of its own has no DHCP server.
pub(crate) async fn withdraw(client: Client, node: String) {
    let patch = json!({"metadata": {"annotations": {SERVER_KEY: null}}});
    if let Err(failure) = merge(&Api::<Node>::all(client), &node, &patch).await {
        debug!(error = %Chain(&Fault(failure)), "cannot say that this node has no DHCP server");
    }
}

/// Known pools, and what is in force.
struct DhcpServers {
    target: DhcpTarget,
    ports: PortDhcp,
    pools: KnownObjects<PoolRecord>,
    served: Option<BTreeMap<LinkName, PortLease>>,
    serves: Retries<(), BTreeMap<LinkName, PortLease>>,
    report: ReadyReport,
    is_failing: bool,
}

impl DhcpServers {
    fn new(client: Client, target: DhcpTarget, tasks: &Tasks) -> Self {
        let ports = PortDhcp::new(tasks);
        let pools = KnownObjects::default();
        let report = ReadyReport::new(client, target.node.clone());
        let serves = Retries::new(FIRST_RETRY, LAST_RETRY);
        Self { target, ports, pools, served: None, serves, report, is_failing: false }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> bool {
        match event {
            Ok(event) => {
                self.pools.take(event, read_pool);
                self.is_failing = false;
                false
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(error = %Chain(&failure), "cannot watch address pools");
                }
                true
            }
        }
    }

    /// Makes rules and servers follow, and says so on the node; returns when to try again.
    async fn hand_over(&mut self) -> Option<Duration> {
        let pools = self.pools.all()?;
        let wanted = plan::leases(pools.values(), &self.target.interfaces.borrow());
        if self.served.as_ref() != Some(&wanted) {
            let pause = self.serves.pause(&(), &wanted, Instant::now());
            if pause.is_some() {
                return pause;
            }
            if !self.serve(wanted.clone()).await {
                return Some(self.serves.fail((), wanted, Instant::now()));
            }
            self.serves.succeed(&());
        }
        self.report.write().await
    }

    async fn serve(&mut self, wanted: BTreeMap<LinkName, PortLease>) -> bool {
        let servers: BTreeMap<LinkName, Ipv4Addr> =
            wanted.iter().map(|(tap, own)| (tap.clone(), own.server.address.addr())).collect();
        if let Err(failure) = self.target.network.answer_dhcp(servers).await {
            warn!(error = %Chain(&failure), "cannot keep DHCP requests of guests on this node");
            self.served = None;
            return false;
        }
        if let Err(failure) = self.ports.replace(wanted.clone()) {
            warn!(error = %Chain(&failure), "DHCP options of a pool cannot be sent");
            self.served = None;
            return false;
        }
        debug!(ports = wanted.len(), "DHCP requests of guests on bridges are answered");
        self.served = Some(wanted);
        true
    }
}

/// The annotation of the node that says that requests are answered, which pools show.
struct ReadyReport {
    client: Client,
    node: String,
    is_written: bool,
    retries: Retries<(), ()>,
}

impl ReadyReport {
    fn new(client: Client, node: String) -> Self {
        Self { client, node, is_written: false, retries: Retries::new(FIRST_RETRY, LAST_RETRY) }
    }

    /// Writes it once; returns when to try again.
    async fn write(&mut self) -> Option<Duration> {
        if self.is_written {
            return None;
        }
        if let Some(pause) = self.retries.pause(&(), &(), Instant::now()) {
            return Some(pause);
        }
        let patch = json!({"metadata": {"annotations": {SERVER_KEY: SERVER_READY}}});
        let api = Api::<Node>::all(self.client.clone());
        match merge(&api, &self.node, &patch).await {
            Ok(_) => {
                info!("this node answers DHCP requests on networks with an address pool");
                self.is_written = true;
                None
            }
            Err(failure) => {
                debug!(error = %Chain(&Fault(failure)), "cannot report the DHCP server of this node");
                Some(self.retries.fail((), (), Instant::now()))
            }
        }
    }
}

fn read_pool(object: DynamicObject) -> Option<PoolRecord> {
    let object: Value = serde_json::to_value(object).ok()?;
    PoolRecord::read(&object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::tests::{MOST_ATTEMPTS, a_minute_of, refusing};

    #[tokio::test(start_paused = true)]
    async fn a_refused_report_is_written_after_growing_pauses() {
        let (client, asked) = refusing(403);
        let mut report = ReadyReport::new(client, "one".to_owned());
        a_minute_of(async || report.write().await).await;
        let asked = asked.lock();
        assert!((3..=MOST_ATTEMPTS).contains(&asked.len()), "{asked:?}");
    }
}
