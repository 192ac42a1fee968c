//! Addresses of load balancers are announced by one node each: which one is decided here, and written
//! into a Lease per address (`hci::announcement`), which the node renews.
//!
//! Leases are read every few seconds and not watched: a renewal needs no reaction. How long a
//! lease has been unchanged is measured here with a monotonic clock, so that an address moves only
//! when its holder has stopped. The measurements are lost with the process, which gives every
//! holder its full time again.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hci::announcement::{HANDOVER, NAMESPACE, SELECTOR};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use crate::key::ObjectKey;
use crate::load_balancer::{BALANCERS, OWNED, POOLS, SERVICES};
use crate::object::name;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::record::lease as record;
use crate::resource::{NODES, Objects, Resource, is_refused};
use plan::{AnnouncementChange, AnnouncementState};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
/// How often leases are read while there are any.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The same while an address is on its way to a node.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// All addresses together, since nodes are chosen by how many they have.
#[derive(Debug, Default)]
pub(crate) struct AnnouncementMapper;

impl EventMapper for AnnouncementMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let (ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind)) = touch;
        let concerns = [BALANCERS, POOLS, NODES].iter().any(|own| own.is(kind));
        if concerns { vec![ObjectKey::new("", "announcements")] } else { Vec::new() }
    }
}

/// The last change of a lease that was seen.
#[derive(Debug)]
struct ObservedLease {
    holder: String,
    renewed: String,
    since: Instant,
}

pub(crate) struct AnnouncementReconciler {
    objects: Objects,
    seen: Mutex<BTreeMap<String, ObservedLease>>,
}

impl AnnouncementReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client), seen: Mutex::default() }
    }

    /// Everything that is decided about; nothing where there are neither pools nor leases.
    async fn state(&self) -> Result<Option<AnnouncementState>, ReconcileError> {
        let list = |resource, namespace, labels| self.objects.list(resource, namespace, labels);
        let pools = list(POOLS, "", "").await.doing("list address pools")?;
        let leases = list(LEASES, NAMESPACE, SELECTOR).await.doing("list leases")?;
        let unchanged = self.measure(&leases, Instant::now());
        if pools.is_empty() && leases.is_empty() {
            return Ok(None);
        }
        Ok(Some(AnnouncementState {
            pools,
            leases,
            unchanged,
            balancers: list(BALANCERS, "", "").await.doing("list load balancers")?,
            services: list(SERVICES, "", OWNED).await.doing("list services")?,
            nodes: list(NODES, "", "").await.doing("list nodes")?,
        }))
    }

    /// How long leases have been unchanged.
    fn measure(&self, leases: &[Value], now: Instant) -> BTreeMap<String, Duration> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for lease in leases {
            let spec = record::lease(lease);
            let (holder, renewed) = (spec.holder_identity, spec.renew_time);
            let is_known = |own: &ObservedLease| own.holder == holder && own.renewed == renewed;
            if !seen.get(name(lease)).is_some_and(is_known) {
                let (holder, renewed) = (holder.to_owned(), renewed.to_owned());
                seen.insert(name(lease).to_owned(), ObservedLease { holder, renewed, since: now });
            }
        }
        let exists = |key: &String| leases.iter().any(|lease| name(lease) == *key);
        seen.retain(|key, own| {
            exists(key) || !own.holder.is_empty() && now.duration_since(own.since) < HANDOVER
        });
        seen.iter().map(|(key, own)| (key.clone(), now.duration_since(own.since))).collect()
    }

    async fn apply(&self, change: AnnouncementChange) -> Result<(), kube::Error> {
        match change {
            AnnouncementChange::CreateLease(object) => {
                self.objects.create(LEASES, NAMESPACE, &object).await.map(drop)
            }
            AnnouncementChange::PatchLease { name, patch } => {
                self.objects.merge(LEASES, NAMESPACE, &name, &patch).await.map(drop)
            }
            AnnouncementChange::DeleteLease { name, uid } => {
                self.objects.delete(LEASES, NAMESPACE, &name, &uid).await
            }
            AnnouncementChange::Status { namespace, name, patch } => {
                self.objects.merge_status(SERVICES, &namespace, &name, &patch).await.map(drop)
            }
        }
    }
}

impl Reconciler for AnnouncementReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let Some(state) = self.state().await? else { return Ok(ReconcileResult::Done) };
        let changes = plan::plan(&state, base::clock::now());
        let is_waiting = !changes.is_empty() || plan::is_waiting(&state);
        for change in changes {
            match self.apply(change).await {
                // Another writer was faster: the remaining changes were planned on outdated
                // objects.
                Err(failure) if [403, 404, 409].iter().any(|code| is_refused(&failure, *code)) => {
                    return Ok(ReconcileResult::Retry);
                }
                written => written.doing("write who announces an address")?,
            }
        }
        Ok(match (is_waiting, plan::is_idle(&state)) {
            (true, _) => ReconcileResult::Again(WAIT_INTERVAL),
            (false, false) => ReconcileResult::Again(RECHECK_INTERVAL),
            (false, true) => ReconcileResult::Done,
        })
    }
}
