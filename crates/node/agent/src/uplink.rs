//! The uplinks of this node: follows the VlanConfigs that select it and the networks of machines,
//! hands what `plan` makes of them to `net::Uplinks`, and reports: a VlanStatus for each cluster
//! network, labels of the Node, and whether a cluster network is ready.
//!
//! Nothing is changed before all lists have been read: a restart leaves everything as it is. A change
//! of any link, a cut cable or a card that appears, leads to another look.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use base::{Chain, Tasks};
use client::Fault;
use futures_util::{Stream, StreamExt as _, stream};
use hci::harvester::network::VlanConfig;
use hci::network::{CLUSTER_NETWORK_KEY, GROUP, NODE_KEY, NetworkConfig, VERSION};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{Network, UplinkReport, Uplinks};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::api::{MANAGER, merge, present};
use crate::known_objects::KnownObjects;
use plan::WantedUplink;

/// Between two attempts to reach the server, or to change the links.
const RETRY: Duration = Duration::from_secs(2);
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
    Network(Box<Result<Event<DynamicObject>, watcher::Error>>),
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Runs until the tasks are stopped; bonds and bridges stay.
pub(crate) async fn run(client: Client, node: String, target: UplinkTarget, tasks: Tasks) {
    let uplinks = match Uplinks::start(&tasks) {
        Ok(uplinks) => uplinks,
        Err(failure) => {
            warn!(error = %Chain(&failure), "uplinks of this node cannot be changed");
            return;
        }
    };
    let mut stop = tasks.stop_signal();
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let nodes = watcher(Api::<Node>::all(client.clone()), own);
    let nodes = nodes.map(|event| UplinkChange::Node(Box::new(event)));
    let config = kind(GROUP, VERSION, "VlanConfig", "vlanconfigs");
    let configs = dynamic(&client, &config);
    let configs = configs.map(|event| UplinkChange::Config(Box::new(event)));
    let plural = "network-attachment-definitions";
    let network = kind("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", plural);
    let networks = dynamic(&client, &network);
    let networks = networks.map(|event| UplinkChange::Network(Box::new(event)));
    let changes = stream::select(nodes, stream::select(configs, networks));
    let mut changes = std::pin::pin!(changes.ready_chunks(BATCH));
    let mut links = uplinks.changes();
    let mut reconciler = UplinkReconciler::new(client, node, uplinks, target);
    let mut is_behind = false;
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
            () = tokio::time::sleep(RETRY), if is_behind => {}
            () = stop.requested() => return,
        }
        is_behind = !reconciler.reconcile().await;
    }
}

fn dynamic(
    client: &Client,
    kind: &ApiResource,
) -> impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
    watcher(Api::<DynamicObject>::all_with(client.clone(), kind), watcher::Config::default())
}

/// Known objects of the cluster, and the last statuses written.
struct UplinkReconciler {
    client: Client,
    node: String,
    uplinks: Uplinks,
    target: UplinkTarget,
    nodes: KnownObjects<BTreeMap<String, String>>,
    configs: KnownObjects<VlanConfig>,
    networks: KnownObjects<NetworkConfig>,
    /// The statuses that were written, without their times.
    written: Option<BTreeMap<String, Value>>,
    is_failing: bool,
}

impl UplinkReconciler {
    fn new(client: Client, node: String, uplinks: Uplinks, target: UplinkTarget) -> Self {
        Self {
            client,
            node,
            uplinks,
            target,
            nodes: KnownObjects::default(),
            configs: KnownObjects::default(),
            networks: KnownObjects::default(),
            written: None,
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: UplinkChange) -> bool {
        let outcome = match change {
            UplinkChange::Node(event) => (*event).map(|event| {
                self.nodes.take(event, |node: Node| Some(node.metadata.labels.unwrap_or_default()));
            }),
            UplinkChange::Config(event) => {
                (*event).map(|event| self.configs.take(event, read_config))
            }
            UplinkChange::Network(event) => {
                (*event).map(|event| self.networks.take(event, read_network))
            }
        };
        let Err(failure) = outcome else { return false };
        debug!(error = %Chain(&failure), "cannot watch the networks of the cluster");
        true
    }

    /// Makes the links follow and reports; returns whether all was done.
    async fn reconcile(&mut self) -> bool {
        let (Some(nodes), Some(configs), Some(networks)) =
            (self.nodes.all(), self.configs.all(), self.networks.all())
        else {
            return true;
        };
        let Some(labels) = nodes.values().next().cloned() else { return true };
        let networks: Vec<_> = networks.values().collect();
        let wanted = plan::wanted(&labels, configs.values(), &networks);
        let uplinks: Vec<_> = wanted.iter().filter_map(|own| own.uplink.clone().ok()).collect();
        let report = match self.uplinks.apply(&uplinks).await {
            Ok(report) => report,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot look at the links of this node");
                return false;
            }
        };
        if report.steps > 0
            && let Err(failure) = self.target.network.resync().await
        {
            warn!(error = %Chain(&failure), "cannot connect guests to their uplinks again");
        }
        match self.report(&labels, &wanted, &report).await {
            Ok(()) => {
                self.is_failing = false;
                true
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(error = %Chain(&failure), "cannot report the uplinks of this node");
                }
                false
            }
        }
    }

    async fn report(
        &mut self,
        labels: &BTreeMap<String, String>,
        wanted: &[WantedUplink],
        report: &UplinkReport,
    ) -> Result<(), Fault> {
        let patch = plan::labels(labels, wanted, report);
        if !patch.is_empty() {
            let nodes = Api::<Node>::all(self.client.clone());
            let patch = json!({"metadata": {"labels": patch}});
            merge(&nodes, &self.node, &patch).await.map_err(Fault)?;
        }
        let mut statuses = BTreeMap::new();
        for own in wanted {
            let problem = plan::problem(own, report);
            let status = plan::status(&self.node, own, problem.as_deref());
            let name = status["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            statuses.insert(name, (own, problem, status));
        }
        let current: BTreeMap<_, _> =
            statuses.iter().map(|(name, (.., status))| (name.clone(), status.clone())).collect();
        if self.written.as_ref() == Some(&current) {
            return Ok(());
        }
        let resource = kind(GROUP, VERSION, "VlanStatus", "vlanstatuses");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let own = ListParams::default().labels(&format!("{NODE_KEY}={}", self.node));
        let existing = api.list(&own).await.map_err(Fault)?;
        let mut networks = BTreeSet::new();
        for stale in existing.items {
            let name = stale.metadata.name.clone().unwrap_or_default();
            if !statuses.contains_key(&name) {
                let network = stale.data["status"]["clusterNetwork"].as_str().map(str::to_owned);
                networks.extend(network);
                let deleted = api.delete(&name, &DeleteParams::default()).await;
                present(deleted).map_err(Fault)?;
            }
        }
        let before = self.written.take().unwrap_or_default();
        for (name, (own, problem, status)) in &statuses {
            networks.insert(own.cluster_network.clone());
            if before.get(name) != Some(status) {
                match problem {
                    None => info!(network = %own.cluster_network, "uplink is ready"),
                    Some(why) => {
                        warn!(network = %own.cluster_network, reason = %why, "uplink is not ready");
                    }
                }
                let params = PatchParams::apply(MANAGER).force();
                let object = with_times(status.clone());
                api.patch(name, &params, &Patch::Apply(&object)).await.map_err(Fault)?;
            }
        }
        for network in &networks {
            self.report_network(&api, network).await?;
        }
        self.written = Some(current);
        Ok(())
    }

    /// A cluster network is ready while at least one node reports it.
    async fn report_network(&self, reports: &Api<DynamicObject>, name: &str) -> Result<(), Fault> {
        let of = ListParams::default().labels(&format!("{CLUSTER_NETWORK_KEY}={name}"));
        let is_ready = !reports.list(&of).await.map_err(Fault)?.items.is_empty();
        let resource = kind(GROUP, VERSION, "ClusterNetwork", "clusternetworks");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let Some(found) = present(api.get(name).await).map_err(Fault)? else { return Ok(()) };
        let status = if is_ready { "True" } else { "False" };
        let conditions = found.data["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition["type"] == "ready");
        if ready.any(|condition| condition["status"] == status) {
            return Ok(());
        }
        let mut patch = json!({"status": {"conditions": [{"type": "ready", "status": status}]}});
        patch = with_times(patch);
        merge(&api, name, &patch).await.map(drop).map_err(Fault)
    }
}

/// An object with the present time in its only condition.
fn with_times(mut object: Value) -> Value {
    let now = json!(base::clock::now_rfc3339());
    let condition = &mut object["status"]["conditions"][0];
    condition["lastUpdateTime"] = now.clone();
    condition["lastTransitionTime"] = now;
    object
}

fn read_config(object: DynamicObject) -> Option<VlanConfig> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

fn read_network(object: DynamicObject) -> Option<NetworkConfig> {
    NetworkConfig::read(&object.data).ok()
}
