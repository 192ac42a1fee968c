//! Addresses of machines on networks with an IPPool.
//!
//! Each machine with an interface on such a network has a VirtualMachineNetworkConfig (`machine`), and
//! all of these get addresses of their pools together (`plan`). An address is recorded in the pool
//! before a configuration shows it, so that no two machines ever have the same one. The
//! nodes answer DHCP requests from what the pools say.

mod machine;
mod plan;
mod record;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;

use crate::event::{self, Regarding};
use crate::key::ObjectKey;
use crate::object::{name, namespace, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS, VMS, is_refused};
use machine::ConfigChange;
use plan::{DhcpChange, DhcpState};

const POOLS: Resource = Resource::new(hci::dhcp::GROUP, hci::dhcp::VERSION, "ippools");
const CONFIGS: Resource =
    Resource::new(hci::dhcp::GROUP, hci::dhcp::VERSION, "virtualmachinenetworkconfigs");
const NETWORKS: Resource = Resource::new("k8s.cni.cncf.io", "v1", "network-attachment-definitions");
const SOURCE: &str = "dhcp-controller";

/// Objects to be reconciled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DhcpKey {
    /// The configuration of a machine.
    Machine(ObjectKey),
    /// The configurations of all machines.
    Machines,
    /// Addresses of all pools.
    Pools,
}

/// Stores the names of all pools, so that machines are reconciled only if there is one.
#[derive(Debug, Default)]
pub(crate) struct DhcpMapper(BTreeSet<ObjectKey>);

impl EventMapper for DhcpMapper {
    type Key = DhcpKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<DhcpKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state } => {
                let own = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                if POOLS.is(kind) {
                    let is_news = match state {
                        ObjectState::Gone => self.0.remove(&own),
                        ObjectState::Live | ObjectState::Deleting => self.0.insert(own),
                    };
                    let machines = is_news.then_some(DhcpKey::Machines);
                    return [DhcpKey::Pools].into_iter().chain(machines).collect();
                }
                if self.0.is_empty() && !CONFIGS.is(kind) {
                    return Vec::new();
                }
                if VMS.is(kind) {
                    vec![DhcpKey::Machine(own)]
                } else if CONFIGS.is(kind) {
                    vec![DhcpKey::Machine(own), DhcpKey::Pools]
                } else if NODES.is(kind) || NETWORKS.is(kind) {
                    vec![DhcpKey::Pools]
                } else {
                    Vec::new()
                }
            }
            ObjectChange::Missed(kind) => {
                let near = [POOLS, CONFIGS, VMS, NODES, NETWORKS];
                let concerns = near.iter().any(|own| own.is(kind)) && !self.0.is_empty();
                if concerns { vec![DhcpKey::Pools, DhcpKey::Machines] } else { Vec::new() }
            }
        }
    }
}

pub(crate) struct DhcpReconciler(Objects);

impl Reconciler for DhcpReconciler {
    type Key = DhcpKey;

    async fn reconcile(&self, key: &DhcpKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            DhcpKey::Machine(key) => {
                let pools = self.0.list(POOLS, "", "").await.doing("list address pools")?;
                let found = self.0.get(VMS, &key.namespace, &key.name).await;
                match found.doing("get the machine")? {
                    Some(machine) => self.machine(&machine, &pools).await,
                    // Its configuration is collected as garbage.
                    None => Ok(ReconcileResult::Done),
                }
            }
            DhcpKey::Machines => {
                let pools = self.0.list(POOLS, "", "").await.doing("list address pools")?;
                let mut result = ReconcileResult::Done;
                for machine in self.0.list(VMS, "", "").await.doing("list machines")? {
                    if self.machine(&machine, &pools).await? == ReconcileResult::Retry {
                        result = ReconcileResult::Retry;
                    }
                }
                Ok(result)
            }
            DhcpKey::Pools => self.pools().await,
        }
    }
}

impl DhcpReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// Makes the configuration of a machine follow its interfaces.
    async fn machine(
        &self,
        machine: &Value,
        pools: &[Value],
    ) -> Result<ReconcileResult, ReconcileError> {
        let (home, own) = (namespace(machine), name(machine));
        let config = self.0.get(CONFIGS, home, own).await.doing("get a network configuration")?;
        let vmi = match machine::lacks_mac(machine) {
            true => self.0.get(VMIS, home, own).await.doing("get the instance")?,
            false => None,
        };
        let written = match machine::plan(machine, vmi.as_ref(), pools, config.as_ref()) {
            None => Ok(()),
            Some(ConfigChange::Create(object)) => {
                self.0.create(CONFIGS, home, &object).await.map(drop)
            }
            Some(ConfigChange::Patch(patch)) => {
                self.0.merge(CONFIGS, home, own, &patch).await.map(drop)
            }
            Some(ConfigChange::Foreign(message)) => {
                self.warn(machine, "NetworkConfigConflict", message).await;
                Ok(())
            }
        };
        match written {
            Err(failure) if [403, 404, 409].iter().any(|code| is_refused(&failure, *code)) => {
                Ok(ReconcileResult::Retry)
            }
            written => {
                written.doing("write the network configuration of a machine")?;
                Ok(ReconcileResult::Done)
            }
        }
    }

    /// Allocates addresses of all pools.
    async fn pools(&self) -> Result<ReconcileResult, ReconcileError> {
        let pools = self.0.list(POOLS, "", "").await.doing("list address pools")?;
        let configs = self.0.list(CONFIGS, "", "").await.doing("list network configurations")?;
        if pools.is_empty() && configs.is_empty() {
            // The label of the network of the last pool is all that can be left.
            let networks = self.0.list(NETWORKS, "", hci::dhcp::POOL_NAME_KEY).await;
            if networks.doing("list networks")?.is_empty() {
                return Ok(ReconcileResult::Done);
            }
        }
        let state = DhcpState {
            pools,
            configs,
            machines: self.0.list(VMS, "", "").await.doing("list machines")?,
            networks: self.0.list(NETWORKS, "", "").await.doing("list networks")?,
            nodes: self.0.list(NODES, "", "").await.doing("list nodes")?,
        };
        for change in plan::plan(&state, base::clock::now()) {
            match self.apply(&state, change).await {
                // Another writer was faster: the remaining changes were planned on outdated
                // objects.
                Err(failure) if [403, 404, 409].iter().any(|code| is_refused(&failure, *code)) => {
                    return Ok(ReconcileResult::Retry);
                }
                written => written.doing("write addresses of machines")?,
            }
        }
        Ok(ReconcileResult::Done)
    }

    async fn apply(&self, state: &DhcpState, change: DhcpChange) -> Result<(), kube::Error> {
        match change {
            DhcpChange::Network { key, patch } => {
                self.0.merge(NETWORKS, &key.namespace, &key.name, &patch).await.map(drop)
            }
            DhcpChange::Pool { key, patch } => {
                self.0.merge_status(POOLS, &key.namespace, &key.name, &patch).await.map(drop)
            }
            DhcpChange::Config { key, patch } => {
                self.0.merge_status(CONFIGS, &key.namespace, &key.name, &patch).await.map(drop)
            }
            DhcpChange::Warn { machine, message } => {
                let found = state.machines.iter().find(|own| ObjectKey::of(own) == machine);
                if let Some(machine) = found {
                    self.warn(machine, "AddressNotAllocated", message).await;
                }
                Ok(())
            }
        }
    }

    async fn warn(&self, machine: &Value, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachine",
            namespace: namespace(machine),
            name: name(machine),
            uid: uid(machine),
        };
        event::warn(&self.0.0, SOURCE, &regarding, reason, message).await;
    }
}

/// The networks that have a pool.
fn pooled_networks(pools: &[Value]) -> BTreeSet<(&str, &str)> {
    let live = pools.iter().filter(|pool| !crate::object::is_deleting(pool));
    live.map(|pool| hci::dhcp::network_of(record::pool_spec(pool).network_name)).collect()
}

#[cfg(test)]
mod tests;
