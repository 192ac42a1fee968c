//! Reports the network of this host: VlanStatuses, the entry of this node in HostNetworkConfigs, labels
//! and a trial on the Node, events, and whether a cluster network is ready. Writes what differs.

use std::collections::{BTreeMap, BTreeSet};

use client::Fault;
use hci::host_network::TRIAL;
use hci::network::{CLUSTER_NETWORK_KEY, GROUP, NODE_KEY, VERSION, network_of};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use net::LinkName;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::change::{self, WantedUnit};
use super::interface::{self, WantedInterface};
use super::kind;
use super::plan::{self, WantedUplink};
use super::trial::{HostOutcome, TrialEnd};
use crate::api::{MANAGER, merge, present};
use crate::event::{EventNote, Reporter};

/// Everything that a report is made of.
pub(super) struct HostState<'a> {
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) uplinks: Vec<WantedUplink>,
    pub(super) interfaces: Vec<WantedInterface>,
    /// HostNetworkConfigs whose entry of this node is to be removed.
    pub(super) stale: Vec<String>,
    pub(super) units: BTreeMap<LinkName, WantedUnit>,
    pub(super) outcome: HostOutcome,
}

impl HostState<'_> {
    fn applied(&self, bridge: Option<&LinkName>) -> (&'static str, &'static str, String) {
        let Some(bridge) = bridge else { return ("False", "Invalid", String::new()) };
        let unit = self.units.get(bridge).map(|own| &own.unit);
        let waiting = self.outcome.waiting.as_ref().filter(|(own, _)| own == bridge);
        let waiting = waiting.map(|(_, why)| why.as_str());
        let problems = self.outcome.report.problems.get(bridge);
        let problems = problems.map(Vec::as_slice).unwrap_or_default();
        change::applied(&self.outcome.record, bridge, unit, waiting, problems)
    }
}

pub(super) struct StatusWriter {
    client: Client,
    node: String,
    reporter: Reporter,
    /// The statuses that were written, without their times.
    statuses: Option<BTreeMap<String, Value>>,
    hosts: BTreeMap<String, Value>,
    trial: Option<String>,
}

impl StatusWriter {
    pub(super) fn new(client: Client, node: &str) -> Self {
        let reporter = Reporter::new(client.clone(), node);
        let node = node.to_owned();
        Self { client, node, reporter, statuses: None, hosts: BTreeMap::new(), trial: None }
    }

    pub(super) async fn write(&mut self, state: &HostState<'_>) -> Result<(), Fault> {
        self.write_node(state).await?;
        self.write_events(state).await;
        self.write_statuses(state).await?;
        self.write_hosts(state).await
    }

    async fn write_node(&mut self, state: &HostState<'_>) -> Result<(), Fault> {
        let trial = state.outcome.record.trial.as_ref().map(change::report);
        let trial = trial.map_or_else(String::new, |report| json!(report).to_string());
        let labels = plan::labels(state.labels, &state.uplinks, &state.outcome.report);
        let is_new = self.trial.as_ref() != Some(&trial);
        // Nodes that never tried anything save themselves the annotation.
        let is_trivial = self.trial.is_none() && trial.is_empty();
        let mut metadata = json!({});
        if !labels.is_empty() {
            metadata["labels"] = json!(labels);
        }
        if is_new && !is_trivial {
            let value = if trial.is_empty() { Value::Null } else { json!(trial) };
            metadata["annotations"] = json!({TRIAL: value});
        }
        if metadata.as_object().is_some_and(|own| !own.is_empty()) {
            let nodes = Api::<Node>::all(self.client.clone());
            merge(&nodes, &self.node, &json!({"metadata": metadata})).await.map_err(Fault)?;
        }
        if !is_trivial {
            self.trial = Some(trial);
        }
        Ok(())
    }

    async fn write_events(&self, state: &HostState<'_>) {
        let (bridge, note) = match &state.outcome.end {
            None => return,
            Some(TrialEnd::Confirmed { bridge }) => {
                let text = format!("network of node {} is confirmed", self.node);
                (bridge, EventNote::normal("NetworkConfirmed", text))
            }
            Some(TrialEnd::RolledBack { bridge, reason }) => {
                let text = format!("network of node {} is rolled back: {reason}", self.node);
                (bridge, EventNote::warning("NetworkRolledBack", text))
            }
        };
        let network = network_of(bridge.as_str()).unwrap_or_default();
        let configs = state.uplinks.iter().filter(|own| own.cluster_network == network);
        let configs = configs.map(|own| ("VlanConfig", own.config.clone()));
        let hosts = state.interfaces.iter().filter(|own| own.cluster_network == network);
        let hosts = hosts.map(|own| ("HostNetworkConfig", own.config.clone()));
        let version = format!("{GROUP}/{VERSION}");
        let mut about: Vec<_> =
            configs.chain(hosts).map(|(kind, name)| (version.as_str(), kind, name)).collect();
        // The objects of what was to be removed are gone.
        if about.is_empty() {
            about.push(("v1", "Node", self.node.clone()));
        }
        for (version, kind, name) in about {
            let about = ObjectReference {
                api_version: Some(version.to_owned()),
                kind: Some(kind.to_owned()),
                name: Some(name),
                ..ObjectReference::default()
            };
            self.reporter.report(&about, note.clone()).await;
        }
    }

    async fn write_statuses(&mut self, state: &HostState<'_>) -> Result<(), Fault> {
        let mut statuses = BTreeMap::new();
        for own in &state.uplinks {
            let (status, reason, message) = state.applied(own.bridge().as_ref());
            let rolled_back = (reason == "RolledBack").then(|| message.clone());
            let problem = plan::problem(own, &state.outcome.report).or(rolled_back);
            let applied = (status, reason, message.as_str());
            let object = plan::status(&self.node, own, problem.as_deref(), applied);
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            statuses.insert(name, (own, problem, object));
        }
        let current: BTreeMap<_, _> =
            statuses.iter().map(|(name, (.., status))| (name.clone(), status.clone())).collect();
        if self.statuses.as_ref() == Some(&current) {
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
        let before = self.statuses.take().unwrap_or_default();
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
                let mut object = status.clone();
                set_times(&mut object["status"]["conditions"]);
                api.patch(name, &params, &Patch::Apply(&object)).await.map_err(Fault)?;
            }
        }
        for network in &networks {
            self.write_network(&api, network).await?;
        }
        self.statuses = Some(current);
        Ok(())
    }

    /// The entries of this node in the HostNetworkConfigs that select it.
    async fn write_hosts(&mut self, state: &HostState<'_>) -> Result<(), Fault> {
        let resource = kind(GROUP, VERSION, "HostNetworkConfig", "hostnetworkconfigs");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let mut current = BTreeMap::new();
        for own in &state.interfaces {
            let bridge = own.bridge();
            let (status, reason, message) = state.applied(bridge.as_ref());
            let failed = |why: &str| Some(format!("setup l3 connectivity failed: {why}"));
            let problem = match (&own.interface, reason) {
                (Err(why), _) => failed(&why.to_string()),
                (Ok(_), "Confirmed") => None,
                (Ok(_), "Applying" | "AwaitingConfirmation" | "Waiting") => {
                    Some(format!("{reason}: {message}"))
                }
                (Ok(_), _) => failed(&format!("{reason}: {message}")),
            };
            let applied = (status, reason, message.as_str());
            let links = &state.outcome.report.links;
            let entry = interface::status(own, links, problem.as_deref(), applied);
            current.insert(own.config.clone(), entry);
        }
        let known = self.hosts.keys().filter(|name| !current.contains_key(*name)).cloned();
        let gone: BTreeSet<String> = known.chain(state.stale.iter().cloned()).collect();
        for name in gone {
            self.write_host(&api, &name, Value::Null).await?;
            self.hosts.remove(&name);
        }
        for (name, entry) in current {
            if self.hosts.get(&name) != Some(&entry) {
                let mut dated = entry.clone();
                set_times(&mut dated["conditions"]);
                self.write_host(&api, &name, dated).await?;
                self.hosts.insert(name, entry);
            }
        }
        Ok(())
    }

    async fn write_host(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        entry: Value,
    ) -> Result<(), Fault> {
        let patch = json!({"status": {"nodeStatus": {self.node.as_str(): entry}}});
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..Default::default() };
        let written = api.patch_status(name, &params, &Patch::Merge(&patch)).await;
        present(written).map(drop).map_err(Fault)
    }

    /// A cluster network is ready while at least one node reports it.
    async fn write_network(&self, reports: &Api<DynamicObject>, name: &str) -> Result<(), Fault> {
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
        set_times(&mut patch["status"]["conditions"]);
        merge(&api, name, &patch).await.map(drop).map_err(Fault)
    }
}

/// Dates conditions with the present time.
fn set_times(conditions: &mut Value) {
    let now = json!(base::clock::now_rfc3339());
    for condition in conditions.as_array_mut().into_iter().flatten() {
        condition["lastUpdateTime"] = now.clone();
        condition["lastTransitionTime"] = now.clone();
    }
}
