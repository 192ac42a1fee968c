//! Nodes that fall silent: their condition, their taints, and the instances on them.
//!
//! Leases are read when they would end, not watched: a renewal is no news.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use self::plan::LeaseState;
use crate::condition;
use crate::event::{self, About};
use crate::object::{name, namespace, text, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS, is_refused};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// After the end of a lease, for a renewal that is on its way.
const SLACK: Duration = Duration::from_secs(1);
/// How often a living node is looked at.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often a silent node is looked at.
const SILENT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Every node that exists.
#[derive(Debug, Default)]
pub(crate) struct Nodes;

impl EventMapper for Nodes {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. } if NODES.is(kind) => {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct NodeReconciler {
    objects: Objects,
    /// When the lease of each node was last seen to change, and to what.
    renewals: Mutex<BTreeMap<Arc<str>, (String, Instant)>>,
}

impl NodeReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client), renewals: Mutex::default() }
    }

    /// How long ago the lease was last seen to change.
    fn unchanged(&self, node: &Arc<str>, lease: Option<&Value>) -> Duration {
        let renewal = lease.map_or("", |lease| text(lease, "/spec/renewTime"));
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            renewals.entry(Arc::clone(node)).or_insert_with(|| (String::new(), Instant::now()));
        if known.0 != renewal {
            *known = (renewal.to_owned(), Instant::now());
        }
        known.1.elapsed()
    }

    /// Writes that a node fell silent, and that nobody knows how its guests are.
    async fn mark_unreachable(&self, node: &Value) -> Result<(), ReconcileError> {
        let now = clock::now();
        if let Some(patch) = plan::status(node, now) {
            self.objects
                .merge_status(NODES, "", name(node), &patch)
                .await
                .doing("mark the node")?;
            warn!(node = name(node), "node does not renew its lease");
            let about = About {
                api_version: "v1",
                kind: "Node",
                namespace: "",
                name: name(node),
                uid: uid(node),
            };
            let message = format!("Node {} status is now: NodeNotReady", name(node));
            event::warn(&self.objects.0, "node-controller", &about, "NodeNotReady", message).await;
        }
        let label = format!("kubevirt.io/nodeName={}", name(node));
        let instances = self.objects.list(VMIS, "", &label).await.doing("list its instances")?;
        for vmi in &instances {
            let Some(patch) = plan::instance(vmi, name(node), now) else { continue };
            let written = self.objects.merge(VMIS, namespace(vmi), name(vmi), &patch).await;
            // Gone, or its node is back and has written first.
            if !written.as_ref().is_err_and(|why| is_refused(why, 404) || is_refused(why, 409)) {
                written.doing("mark an instance")?;
            }
        }
        Ok(())
    }
}

impl Reconciler for NodeReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, key: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let node = self.objects.get(NODES, "", key).await.doing("get the node")?;
        let Some(node) = node else {
            self.renewals.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(ReconcileResult::Done);
        };
        let lease = self.objects.get(LEASES, LEASE_NAMESPACE, key).await.doing("get its lease")?;
        let pulse = plan::pulse(lease.as_ref(), self.unchanged(key, lease.as_ref()));
        if let Some(patch) = plan::taints(&node, pulse, clock::now()) {
            self.objects.merge(NODES, "", key, &patch).await.doing("taint the node")?;
            // The patch has changed its version.
            return Ok(ReconcileResult::Again(Duration::ZERO));
        }
        match pulse {
            LeaseState::Beats(left) => {
                if condition::is(&node, "Ready", "Unknown") {
                    info!(node = &**key, "node renews its lease again");
                }
                Ok(ReconcileResult::Again(left.min(LEASE_CHECK_INTERVAL) + SLACK))
            }
            LeaseState::Silent => {
                self.mark_unreachable(&node).await?;
                Ok(ReconcileResult::Again(SILENT_CHECK_INTERVAL))
            }
        }
    }
}
