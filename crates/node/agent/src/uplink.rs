//! The uplinks of this node and its own interfaces on them: follows the VlanConfigs and
//! HostNetworkConfigs that select it and the networks of machines, and reports: a VlanStatus for each
//! cluster network, labels of the Node, and whether a cluster network is ready.
//!
//! Every change is a trial (`trial`): it is rolled back unless the node is still reached afterwards.
//!
//! Nothing is changed before all lists have been read: a restart leaves everything as it is. A change
//! of any link, a cut cable or a card that appears, leads to another check.

mod change;
mod health;
mod interface;
mod invalid;
mod plan;
mod report;
mod trial;
mod turn;

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use base::{Chain, Tasks};
use futures_util::{Stream, StreamExt as _, stream};
use hci::harvester::network::{HostNetworkConfig, VlanConfig};
use hci::host_network::CONFIRMED;
use hci::network::{GROUP, NetworkConfig, VERSION};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{HostDhcp, HostRecord, LinkName, Network, Uplinks};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::known_objects::KnownObjects;
use crate::retry::{Retries, sooner};
use change::WantedUnit;
use interface::{Leased, WantedInterface};
use plan::WantedUplink;
use report::{HostState, StatusWriter};
use trial::HostTrials;

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(2);
/// Between two attempts to make the same change, or to write the same report: the pause doubles
/// while they fail.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long a report may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);
/// As many events as are taken together.
const BATCH: usize = 256;

/// Network and ownership that uplinks are changed with.
pub(crate) struct UplinkTarget {
    /// The network whose taps are ports of the bridges.
    pub(crate) network: Network,
    /// Keeps other processes of this network namespace from the uplinks.
    pub(crate) _claim: UnixListener,
}

/// An event of one of the watches; boxed, since they differ much in size.
enum UplinkChange {
    Node(Box<Result<Event<Node>, watcher::Error>>),
    Config(Box<Result<Event<DynamicObject>, watcher::Error>>),
    Host(Box<Result<Event<DynamicObject>, watcher::Error>>),
    Network(Box<Result<Event<DynamicObject>, watcher::Error>>),
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Runs until the tasks are stopped; bonds and bridges stay.
pub(crate) async fn run(
    client: Client,
    node: String,
    dir: PathBuf,
    target: UplinkTarget,
    tasks: Tasks,
) {
    let uplinks = match Uplinks::start(&tasks) {
        Ok(uplinks) => uplinks,
        Err(failure) => {
            warn!(error = %Chain(&failure), "uplinks of this node cannot be changed");
            return;
        }
    };
    let mut stop = tasks.stop_signal();
    let mut trials = HostTrials::new(client.clone(), node.clone(), &dir, uplinks.clone());
    if let Err(failure) = trials.build_confirmed().await {
        warn!(error = %Chain(&failure), "host network cannot be built as it was confirmed");
    }
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let nodes = watcher(Api::<Node>::all(client.clone()), own);
    let nodes = nodes.map(|event| UplinkChange::Node(Box::new(event)));
    let config = kind(GROUP, VERSION, "VlanConfig", "vlanconfigs");
    let configs = dynamic(&client, &config);
    let configs = configs.map(|event| UplinkChange::Config(Box::new(event)));
    let host = kind(GROUP, VERSION, "HostNetworkConfig", "hostnetworkconfigs");
    let hosts = dynamic(&client, &host).map(|event| UplinkChange::Host(Box::new(event)));
    let plural = "network-attachment-definitions";
    let network = kind("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", plural);
    let networks = dynamic(&client, &network);
    let networks = networks.map(|event| UplinkChange::Network(Box::new(event)));
    let configs = stream::select(configs, hosts);
    let changes = stream::select(nodes, stream::select(configs, networks));
    let mut changes = std::pin::pin!(changes.ready_chunks(BATCH));
    let mut links = uplinks.changes();
    let dhcp = HostDhcp::new(&tasks);
    let mut leases = dhcp.leases();
    let mut reconciler = UplinkReconciler::new(client, node, trials, target, dhcp);
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
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.requested() => return,
                    }
                }
            }
            changed = links.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            changed = leases.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            () = stop.requested() => return,
        }
        wait = tokio::select! {
            wait = reconciler.reconcile() => wait,
            () = stop.requested() => return,
        };
    }
}

fn dynamic(
    client: &Client,
    kind: &ApiResource,
) -> impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
    watcher(Api::<DynamicObject>::all_with(client.clone(), kind), watcher::Config::default())
}

/// The part of the Node that matters here.
#[derive(Debug, Clone)]
struct NodeRecord {
    labels: BTreeMap<String, String>,
    /// The trial that a person confirmed.
    confirmed: Option<u64>,
}

/// The network of the host that is wanted, and the trial that a person confirmed.
type WantedHost = (BTreeMap<LinkName, WantedUnit>, Option<u64>);

/// The parts of a report that a change of an object or of this host shows in.
type ReportInput = (BTreeMap<String, String>, Vec<WantedUplink>, Vec<WantedInterface>, HostRecord);

/// Known objects of the cluster, and the last statuses written.
struct UplinkReconciler {
    node: String,
    trials: HostTrials,
    target: UplinkTarget,
    /// Asks for the addresses of interfaces that have none of their own.
    dhcp: HostDhcp,
    nodes: KnownObjects<NodeRecord>,
    configs: KnownObjects<VlanConfig>,
    hosts: KnownObjects<HostNetworkConfig>,
    networks: KnownObjects<NetworkConfig>,
    writer: StatusWriter,
    changes: Retries<(), WantedHost>,
    reports: Retries<(), ReportInput>,
    is_failing: bool,
}

impl UplinkReconciler {
    fn new(
        client: Client,
        node: String,
        trials: HostTrials,
        target: UplinkTarget,
        dhcp: HostDhcp,
    ) -> Self {
        Self {
            dhcp,
            writer: StatusWriter::new(client, &node),
            node,
            trials,
            target,
            nodes: KnownObjects::default(),
            configs: KnownObjects::default(),
            hosts: KnownObjects::default(),
            networks: KnownObjects::default(),
            changes: Retries::new(FIRST_RETRY, LAST_RETRY),
            reports: Retries::new(FIRST_RETRY, LAST_RETRY),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: UplinkChange) -> bool {
        let outcome = match change {
            UplinkChange::Node(event) => (*event).map(|event| self.nodes.take(event, read_node)),
            UplinkChange::Config(event) => (*event).map(|event| self.configs.take(event, read)),
            UplinkChange::Host(event) => (*event).map(|event| self.hosts.take(event, read)),
            UplinkChange::Network(event) => {
                (*event).map(|event| self.networks.take(event, read_network))
            }
        };
        let Err(failure) = outcome else { return false };
        debug!(error = %Chain(&failure), "cannot watch the networks of the cluster");
        true
    }

    /// Makes the links follow and reports; returns when to check again.
    async fn reconcile(&mut self) -> Option<Duration> {
        let (Some(nodes), Some(configs), Some(hosts), Some(networks)) =
            (self.nodes.all(), self.configs.all(), self.hosts.all(), self.networks.all())
        else {
            return None;
        };
        let own = nodes.values().next().cloned()?;
        let networks: Vec<_> = networks.values().collect();
        let uplinks = plan::wanted(&own.labels, configs.values(), &networks);
        let record = match self.trials.record() {
            Ok(record) => record,
            Err(failure) => {
                warn!(error = %Chain(&failure), "record of the host's network cannot be read");
                return Some(LAST_RETRY);
            }
        };
        let leases = self.dhcp.leases().borrow().clone();
        let leased = Leased { leases: &leases, record: &record };
        let interfaces = interface::wanted(&self.node, &own.labels, &leased, hosts.values());
        let stale = interface::stale(&self.node, &interfaces, hosts.values());
        let units = change::units(&uplinks, &interfaces, &record);
        let wanted = (units, own.confirmed);
        if let Some(pause) = self.changes.pause(&(), &wanted, Instant::now()) {
            return Some(pause);
        }
        let outcome = match self.trials.step(&wanted.0, own.confirmed).await {
            Ok(outcome) => outcome,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot change the network of this host");
                return Some(self.changes.fail((), wanted, Instant::now()));
            }
        };
        self.changes.succeed(&());
        let units = wanted.0;
        let asking = interface::dhcp_interfaces(&outcome.record, &outcome.report.links);
        self.dhcp.replace(&asking);
        if outcome.report.steps > 0
            && let Err(failure) = self.target.network.resync().await
        {
            warn!(error = %Chain(&failure), "cannot connect guests to their uplinks again");
        }
        let state = HostState { labels: &own.labels, uplinks, interfaces, stale, units, outcome };
        self.report(&state).await
    }

    /// Writes what the host has; returns when to check again.
    async fn report(&mut self, state: &HostState<'_>) -> Option<Duration> {
        let wait = state.outcome.wait;
        let record = state.outcome.record.clone();
        let input = (state.labels.clone(), state.uplinks.clone(), state.interfaces.clone(), record);
        let pause = self.reports.pause(&(), &input, Instant::now());
        // The end of a trial is reported once, and not again.
        if pause.is_some() && state.outcome.end.is_none() {
            return sooner(wait, pause);
        }
        // A node that is cut off must not wait for the API server: its trial has a deadline.
        match tokio::time::timeout(REPORT_TIMEOUT, self.writer.write(state)).await {
            Ok(Ok(())) => {
                self.is_failing = false;
                self.reports.succeed(&());
                return wait;
            }
            Ok(Err(failure)) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(error = %Chain(&failure), "cannot report the uplinks of this node");
                }
            }
            Err(_) => warn!("API server does not take the report of this node's uplinks"),
        }
        sooner(wait, Some(self.reports.fail((), input, Instant::now())))
    }
}

fn read_node(node: Node) -> Option<NodeRecord> {
    let notes = node.metadata.annotations.unwrap_or_default();
    let confirmed = notes.get(CONFIRMED).and_then(|id| id.parse().ok());
    Some(NodeRecord { labels: node.metadata.labels.unwrap_or_default(), confirmed })
}

fn read<Record: serde::de::DeserializeOwned>(object: DynamicObject) -> Option<Record> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

fn read_network(object: DynamicObject) -> Option<NetworkConfig> {
    NetworkConfig::read(&object.data).ok()
}
