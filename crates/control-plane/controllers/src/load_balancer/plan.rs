//! Which load balancer gets which address, and the services that lead to their machines. Pure.

mod address;
mod service;

use hci::backend_health::ReservedAddresses;
use hci::harvester::load_balancer::LoadBalancer;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{is_deleting, is_merged, name, namespace};
use address::{Allocation, OpenPool};
use service::{Backends, ShownAddress};

/// The label of the services and slices that are made here.
pub(crate) const OWNED: &str = "loadbalancer.harvesterhci.io/servicelb=true";

#[derive(Debug, Default)]
pub(super) struct BalancerState {
    pub(super) balancers: Vec<Value>,
    pub(super) pools: Vec<Value>,
    pub(super) instances: Vec<Value>,
    /// Their addresses and networks are not those of machines on other networks.
    pub(super) nodes: Vec<Value>,
    /// Leases of the namespace of the virtual address of the API.
    pub(super) leases: Vec<Value>,
    /// Made here earlier.
    pub(super) services: Vec<Value>,
    pub(super) slices: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManagedKind {
    Balancer,
    Pool,
    Service,
    Slice,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum BalancerChange {
    Create { kind: ManagedKind, namespace: String, object: Value },
    Patch { kind: ManagedKind, namespace: String, name: String, patch: Value },
    Delete { kind: ManagedKind, namespace: String, name: String, uid: String },
}

impl BalancerChange {
    /// The namespace of the object; empty for pools.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Create { namespace, .. }
            | Self::Patch { namespace, .. }
            | Self::Delete { namespace, .. } => namespace,
        }
    }
}

pub(super) fn plan(state: &BalancerState, now: Timestamp) -> Vec<BalancerChange> {
    let live: Vec<&Value> = state.balancers.iter().filter(|own| !is_deleting(own)).collect();
    let mut pools: Vec<OpenPool<'_>> = state.pools.iter().filter_map(OpenPool::new).collect();
    for pool in &mut pools {
        address::release(pool, &live);
    }
    let reserved = ReservedAddresses::of(&state.nodes, &state.leases);
    let mut later = Vec::new();
    for balancer in live {
        let Ok(typed) = serde_json::from_value::<LoadBalancer>(balancer.clone()) else { continue };
        let allocation = address::allocate(&mut pools, balancer, &typed);
        let backends = service::backends(balancer, &typed, &state.instances, &reserved);
        let servers = &backends.servers;
        later.extend(service::serve(state, balancer, &typed, &allocation, servers));
        let shown = service::shown_address(state, balancer);
        later.extend(status(balancer, &typed, &allocation, &shown, &backends, now));
    }
    let mut changes: Vec<BalancerChange> =
        pools.iter().filter_map(|pool| address::pool_status(pool, now)).collect();
    changes.extend(later);
    changes
}

fn status(
    balancer: &Value,
    typed: &LoadBalancer,
    allocation: &Allocation,
    shown: &ShownAddress<'_>,
    backends: &Backends<'_>,
    now: Timestamp,
) -> Option<BalancerChange> {
    let of_cluster = typed.spec.workload_type.as_deref() == Some("cluster");
    let ready = match allocation {
        Allocation::None(message) => {
            Condition::new("Ready", "False").because("NoAddress", message.clone())
        }
        Allocation::Address(_) if of_cluster => Condition::new("Ready", "True"),
        Allocation::Address(own) if own.ip.as_deref() != Some(shown.address) => {
            let message = format!("service is waiting for external IP{}", shown.why());
            Condition::new("Ready", "False").because("NoExternalIP", message)
        }
        Allocation::Address(_) => match backends.problem() {
            Some(message) => Condition::new("Ready", "False").because("NoBackend", message),
            None => Condition::new("Ready", "True"),
        },
    };
    let mut conditions = condition::of(balancer);
    condition::set(&mut conditions, &ready, now);
    let healthy = backends.servers.iter().filter(|server| server.healthy);
    let mut wanted = json!({
        "backendServers": healthy.map(|server| server.address).collect::<Vec<_>>(),
        "conditions": conditions,
    });
    match allocation {
        Allocation::Address(address) => {
            wanted["allocatedAddress"] = json!(address);
            // The cloud provider of a guest cluster writes the address when it has announced it.
            if !of_cluster {
                let shown = address.ip.as_deref().filter(|own| *own == shown.address);
                wanted["address"] = json!(shown);
            }
        }
        Allocation::None(_) => {
            wanted["allocatedAddress"] = Value::Null;
            if !of_cluster {
                wanted["address"] = Value::Null;
            }
        }
    }
    let patch = json!({"status": wanted});
    (!is_merged(balancer, &patch)).then(|| BalancerChange::Patch {
        kind: ManagedKind::Balancer,
        namespace: namespace(balancer).to_owned(),
        name: name(balancer).to_owned(),
        patch,
    })
}
