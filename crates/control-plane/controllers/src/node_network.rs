//! Networks of their own for replication and migrations: `storage-network` and
//! `vm-migration-network`.
//!
//! Gives each node an address in the range of the setting: the one that its host has there, or one
//! on an interface that a HostNetworkConfig creates. Once all nodes have theirs, their Nodes say so,
//! and agents use them. When the setting changes, addresses are given up before interfaces go.

mod plan;
mod record;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use base::clock;
use hci::network::{GROUP, VERSION};
use hci::node_network::NodeNetwork;
use kube::Client;

use crate::key::ObjectKey;
use crate::object::{name, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS, is_refused};
use plan::{ConfigChange, NetworkState};

const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");
const CONFIGS: Resource = Resource::new(GROUP, VERSION, "hostnetworkconfigs");
const REPLICAS: Resource = Resource::new("longhorn.io", "v1beta2", "replicas");
const ENGINES: Resource = Resource::new("longhorn.io", "v1beta2", "engines");

/// How often it is checked whether addresses that are given up are still used.
const DRAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Each network by the name of its setting.
#[derive(Debug, Default)]
pub(crate) struct NodeNetworkMapper;

impl EventMapper for NodeNetworkMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let networks: Vec<NodeNetwork> = match touch {
            ObjectChange::Missed(kind)
                if [SETTINGS, CONFIGS, NODES].iter().any(|own| own.is(kind)) =>
            {
                NodeNetwork::ALL.to_vec()
            }
            ObjectChange::Object { kind, .. } if NODES.is(kind) => NodeNetwork::ALL.to_vec(),
            ObjectChange::Object { kind, name, state, .. }
                if CONFIGS.is(kind) || SETTINGS.is(kind) && *state == ObjectState::Live =>
            {
                NodeNetwork::of_setting(name).into_iter().collect()
            }
            _ => Vec::new(),
        };
        networks.into_iter().map(|network| ObjectKey::new("", network.setting())).collect()
    }
}

pub(crate) struct NodeNetworkReconciler(Objects);

impl NodeNetworkReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// None for a setting that was never used.
    async fn state(&self, network: NodeNetwork) -> Result<Option<NetworkState>, ReconcileError> {
        let name = network.setting();
        let setting = self.0.get(SETTINGS, "", name).await.doing("get the setting")?;
        let Some(setting) = setting.filter(plan::was_used) else { return Ok(None) };
        let config = self.0.get(CONFIGS, "", name).await.doing("get the host network config")?;
        let nodes = self.0.list(NODES, "", "").await.doing("list nodes")?;
        let mut state = NetworkState { network, setting, config, nodes, used: BTreeSet::new() };
        // Few clusters ever give up an address: lists of all volumes are for these.
        if state.is_withdrawing() {
            state.used = self.used(network).await?;
        }
        Ok(Some(state))
    }

    /// Addresses that replicas have or engines are connected to, or that machines migrate to.
    async fn used(&self, network: NodeNetwork) -> Result<BTreeSet<Ipv4Addr>, ReconcileError> {
        Ok(match network {
            NodeNetwork::Storage => {
                let replicas = self.0.list(REPLICAS, "", "").await.doing("list replicas")?;
                let engines = self.0.list(ENGINES, "", "").await.doing("list engines")?;
                record::of_replicas(&replicas).chain(record::of_engines(&engines)).collect()
            }
            NodeNetwork::Migration => {
                let machines = self.0.list(VMIS, "", "").await.doing("list machines")?;
                record::of_migrations(&machines).collect()
            }
        })
    }

    async fn change_config(&self, change: ConfigChange) -> Result<(), ReconcileError> {
        let written = match change {
            ConfigChange::Create(config) => self.0.create(CONFIGS, "", &config).await.map(drop),
            ConfigChange::Patch { name, patch } => {
                self.0.merge(CONFIGS, "", &name, &patch).await.map(drop)
            }
            ConfigChange::Delete(config) => {
                self.0.delete(CONFIGS, "", name(&config), uid(&config)).await
            }
        };
        match written {
            // Changed by another client meanwhile: the next event decides again.
            Err(failure) if [404, 409].iter().any(|code| is_refused(&failure, *code)) => Ok(()),
            written => written.doing("change the host network config"),
        }
    }
}

impl Reconciler for NodeNetworkReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let Some(network) = NodeNetwork::of_setting(&key.name) else {
            return Ok(ReconcileResult::Done);
        };
        let Some(state) = self.state(network).await? else { return Ok(ReconcileResult::Done) };
        let plan = plan::plan(&state, clock::now());
        // A change that is refused must not keep the setting from reporting it.
        let changed = match plan.config {
            Some(change) => self.change_config(change).await,
            None => Ok(()),
        };
        for (node, patch) in plan.nodes {
            match self.0.merge(NODES, "", &node, &patch).await {
                Err(failure) if is_refused(&failure, 404) => {}
                written => drop(written.doing("write the address of a node")?),
            }
        }
        if let Some(patch) = plan.setting {
            let written = self.0.merge(SETTINGS, "", &key.name, &patch).await;
            drop(written.doing("write the setting's status")?);
        }
        changed?;
        let is_draining = state.is_withdrawing() && state.config.is_some();
        Ok(if is_draining { ReconcileResult::Again(DRAIN_INTERVAL) } else { ReconcileResult::Done })
    }
}

#[cfg(test)]
mod tests;
