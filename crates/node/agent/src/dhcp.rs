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
use tracing::{debug, info, warn};

use crate::api::merge;
use crate::known_objects::KnownObjects;
use plan::PoolRecord;
pub(crate) use plan::{BridgedInterface, BridgedInterfaces};

/// Between two attempts to reach the server, or to change the network.
const RETRY: Duration = Duration::from_secs(1);
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
    let mut is_behind = false;
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
            () = tokio::time::sleep(RETRY), if is_behind => {}
            () = stop.requested() => return,
        }
        is_behind = !server.hand_over().await;
    }
}

/// Says of a node without networks of its own that it answers nobody.
pub(crate) async fn withdraw(client: Client, node: String) {
    let patch = json!({"metadata": {"annotations": {SERVER_KEY: null}}});
    if let Err(failure) = merge(&Api::<Node>::all(client), &node, &patch).await {
        debug!(error = %Chain(&Fault(failure)), "cannot say that this node has no DHCP server");
    }
}

/// Known pools, and what is in force.
struct DhcpServers {
    client: Client,
    target: DhcpTarget,
    ports: PortDhcp,
    pools: KnownObjects<PoolRecord>,
    served: Option<BTreeMap<LinkName, PortLease>>,
    is_reported: bool,
    is_failing: bool,
}

impl DhcpServers {
    fn new(client: Client, target: DhcpTarget, tasks: &Tasks) -> Self {
        let ports = PortDhcp::new(tasks);
        let pools = KnownObjects::default();
        Self { client, target, ports, pools, served: None, is_reported: false, is_failing: false }
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

    /// Makes rules and servers follow; returns whether they do, and the node says so.
    async fn hand_over(&mut self) -> bool {
        let Some(pools) = self.pools.all() else { return true };
        let wanted = plan::leases(pools.values(), &self.target.interfaces.borrow());
        if self.served.as_ref() != Some(&wanted) && !self.serve(wanted).await {
            return false;
        }
        self.is_reported || self.report().await
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

    /// Says on the node that requests are answered, which pools show.
    async fn report(&mut self) -> bool {
        let patch = json!({"metadata": {"annotations": {SERVER_KEY: SERVER_READY}}});
        let api = Api::<Node>::all(self.client.clone());
        match merge(&api, &self.target.node, &patch).await {
            Ok(_) => {
                info!("this node answers DHCP requests on networks with an address pool");
                self.is_reported = true;
                true
            }
            Err(failure) => {
                debug!(error = %Chain(&Fault(failure)), "cannot report the DHCP server of this node");
                false
            }
        }
    }
}

fn read_pool(object: DynamicObject) -> Option<PoolRecord> {
    let object: Value = serde_json::to_value(object).ok()?;
    PoolRecord::read(&object)
}
