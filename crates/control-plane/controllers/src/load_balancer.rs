//! Load balancers of Harvester: they get an address of a pool, and a service of their name that
//! leads to the machines they select.
//!
//! The owner of an address is written to the pool before a load balancer shows it, so that no two
//! ever have the same one. It is shown when the service has it, which `announcement` decides.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hci::cluster::VIP_NAMESPACE;
use kube::Client;

use crate::key::ObjectKey;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS, is_refused};
pub(crate) use plan::OWNED;
use plan::{BalancerChange, BalancerState, ManagedKind};

pub(crate) const BALANCERS: Resource =
    Resource::new(hci::address_pool::GROUP, "v1beta1", "loadbalancers");
pub(crate) const POOLS: Resource = Resource::new(hci::address_pool::GROUP, "v1beta1", "ippools");
pub(crate) const SERVICES: Resource = Resource::new("", "v1", "services");
const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

/// Addresses are allocated by one reconciliation for all load balancers, under one key. Remembers
/// the load balancers, so that machines and services are checked only where there is one.
#[derive(Debug, Default)]
pub(crate) struct BalancerMapper(BTreeSet<(Arc<str>, Arc<str>)>);

impl EventMapper for BalancerMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let concerns = match touch {
            ObjectChange::Object { kind, namespace, name, state } if BALANCERS.is(kind) => {
                let own = (Arc::clone(namespace), Arc::clone(name));
                match state {
                    ObjectState::Gone => self.0.remove(&own),
                    ObjectState::Live | ObjectState::Deleting => self.0.insert(own),
                };
                true
            }
            ObjectChange::Object { kind, .. } if POOLS.is(kind) => true,
            ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind) => {
                let near = [BALANCERS, POOLS, VMIS, NODES, SERVICES, SLICES];
                !self.0.is_empty() && near.iter().any(|own| own.is(kind))
            }
        };
        if concerns { vec![ObjectKey::new("", "load-balancers")] } else { Vec::new() }
    }
}

pub(crate) struct BalancerReconciler(Objects);

impl BalancerReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// Everything that is decided about; nothing where there is neither a load balancer nor a pool.
    async fn state(&self) -> Result<Option<BalancerState>, ReconcileError> {
        let balancers = self.0.list(BALANCERS, "", "").await.doing("list load balancers")?;
        let pools = self.0.list(POOLS, "", "").await.doing("list address pools")?;
        if balancers.is_empty() && pools.is_empty() {
            return Ok(None);
        }
        Ok(Some(BalancerState {
            balancers,
            pools,
            instances: self.0.list(VMIS, "", "").await.doing("list instances")?,
            nodes: self.0.list(NODES, "", "").await.doing("list nodes")?,
            leases: self.0.list(LEASES, VIP_NAMESPACE, "").await.doing("list leases")?,
            services: self.0.list(SERVICES, "", plan::OWNED).await.doing("list services")?,
            slices: self.0.list(SLICES, "", plan::OWNED).await.doing("list endpoint slices")?,
        }))
    }

    async fn apply(&self, change: BalancerChange) -> Result<(), kube::Error> {
        let resource = |kind: ManagedKind| match kind {
            ManagedKind::Balancer => BALANCERS,
            ManagedKind::Pool => POOLS,
            ManagedKind::Service => SERVICES,
            ManagedKind::Slice => SLICES,
        };
        match change {
            BalancerChange::Create { kind, namespace, object } => {
                self.0.create(resource(kind), &namespace, &object).await.map(drop)
            }
            BalancerChange::Patch { kind, namespace, name, patch } => {
                self.0.merge(resource(kind), &namespace, &name, &patch).await.map(drop)
            }
            BalancerChange::Delete { kind, namespace, name, uid } => {
                self.0.delete(resource(kind), &namespace, &name, &uid).await
            }
        }
    }
}

impl Reconciler for BalancerReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let Some(state) = self.state().await? else { return Ok(ReconcileResult::Done) };
        let mut refused: BTreeMap<String, kube::Error> = BTreeMap::new();
        for change in plan::plan(&state, base::clock::now()) {
            let namespace = change.namespace().to_owned();
            if refused.contains_key(&namespace) {
                continue;
            }
            match self.apply(change).await {
                // A quota, or a listener that no Service can have, concerns its namespace alone:
                // load balancers of others go on.
                Err(failure)
                    if !namespace.is_empty()
                        && [403, 422].iter().any(|code| is_refused(&failure, *code)) =>
                {
                    refused.insert(namespace, failure);
                }
                // Conflict, or the namespace is being deleted: what follows was decided on
                // an outdated state.
                Err(failure) if [404, 409].iter().any(|code| is_refused(&failure, *code)) => {
                    return Ok(ReconcileResult::Retry);
                }
                written => written.doing("write what a load balancer needs")?,
            }
        }
        match refused.into_values().next() {
            None => Ok(ReconcileResult::Done),
            Some(failure) => Err(failure).doing("write what a load balancer needs"),
        }
    }
}
