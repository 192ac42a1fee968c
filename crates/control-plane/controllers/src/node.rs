//! Nodes that fall silent: their condition, their taints, and the instances on them.
//!
//! Leases are read every second and not watched: a renewal needs no reaction. `silence` measures
//! how long a node has been silent, `lifecycle` decides the next step, and here it is carried out
//! for all nodes at once, because the number of silent nodes is part of the decision.

mod lifecycle;
mod memory;
mod plan;
mod silence;
mod store_check;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock;
use hci::cluster_setting;
use hci::failover::{ForceResetPolicy, Suspicion};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use self::lifecycle::NodeLife;
use self::memory::{NodeFacts, NodeMemory, RestartPolicy};
use self::store_check::StoreCheck;
use crate::condition;
use crate::event::{self, EventType, Regarding};
use crate::object::{name, namespace, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::record::{lease as record, setting};
use crate::resource::{NODES, Objects, Resource, VMIS, is_refused};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");
const LEASE_NAMESPACE: &str = "kube-node-lease";
const POLICY: &str = "vm-force-reset-policy";
/// How often leases are read while there are nodes that could be lost.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The same on a management node alone.
const REST_INTERVAL: Duration = Duration::from_secs(10);

/// All nodes together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllNodes;

/// Every node that exists.
#[derive(Debug, Default)]
pub(crate) struct Nodes;

impl EventMapper for Nodes {
    type Key = AllNodes;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<AllNodes> {
        match touch {
            ObjectChange::Object { kind, .. } if NODES.is(kind) => vec![AllNodes],
            _ => Vec::new(),
        }
    }
}

pub(crate) struct NodeReconciler {
    objects: Objects,
    store: StoreCheck,
    memory: Mutex<NodeMemory>,
}

/// One reading of all nodes.
struct ClusterView {
    nodes: Vec<Value>,
    leases: BTreeMap<Arc<str>, Value>,
    policy: RestartPolicy,
}

impl ClusterView {
    fn facts(&self) -> Vec<NodeFacts> {
        self.nodes.iter().map(|node| self.facts_of(node)).collect()
    }

    fn facts_of(&self, node: &Value) -> NodeFacts {
        let lease = self.leases.get(name(node));
        NodeFacts {
            name: Arc::from(name(node)),
            renewed: lease.map_or("", |lease| record::lease(lease).renew_time).to_owned(),
            lease: plan::lease_duration(lease),
            is_management: plan::is_management(node),
            is_lost: plan::lost_token(node).is_some(),
            has_rejoined: plan::has_rejoined(node),
        }
    }
}

impl NodeReconciler {
    pub(crate) fn new(client: Client) -> Self {
        let objects = Objects(client);
        Self { store: StoreCheck::new(objects.clone()), objects, memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, NodeMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn view(&self) -> Result<ClusterView, ReconcileError> {
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let leases = self.objects.list(LEASES, LEASE_NAMESPACE, "").await.doing("list leases")?;
        let setting = self.objects.get(SETTINGS, "", POLICY).await.doing("get a setting")?;
        let policy = ForceResetPolicy::parse(&cluster_setting::effective(POLICY, setting.as_ref()));
        let is_chosen = setting.as_ref().is_some_and(|own| !setting::value(own).is_empty());
        let period = is_chosen.then(|| Duration::from_secs(policy.period));
        let leases = leases.into_iter().map(|lease| (Arc::from(name(&lease)), lease)).collect();
        let policy = RestartPolicy { may_restart: policy.enable, period };
        Ok(ClusterView { nodes, leases, policy })
    }

    /// Counts the silence of all nodes since the last check.
    async fn count(&self, nodes: &[NodeFacts], interval: Duration) {
        let now = Instant::now();
        let doubts = self.memory().is_doubtful(nodes, now);
        let store_is_writable = !doubts || self.store.is_writable().await;
        if !store_is_writable {
            warn!("store does not take writes: no node is declared lost meanwhile");
        }
        self.memory().count_silence(nodes, store_is_writable, now, interval);
    }

    /// The current state of each node.
    fn judge(&self, view: &ClusterView, nodes: &[NodeFacts]) -> Vec<NodeLife> {
        let by_name: BTreeMap<&str, &Value> =
            view.nodes.iter().map(|node| (name(node), node)).collect();
        self.memory().judge(nodes, view.policy, Instant::now(), |asked, suspect| {
            plan::sightings(&by_name, asked, suspect)
        })
    }

    /// Brings one node's objects to what it is.
    async fn apply(
        &self,
        view: &ClusterView,
        node: &Value,
        life: NodeLife,
    ) -> Result<(), ReconcileError> {
        if life == (NodeLife::Suspected { ask: true }) {
            return self.ask(view, node).await;
        }
        let now = clock::now();
        let mut node = node.clone();
        if let Some(patch) = plan::taints(&node, life, now) {
            let was_lost = plan::lost_token(&node).is_some();
            let written = self.objects.merge(NODES, "", name(&node), &patch).await;
            node = written.doing("taint the node")?;
            self.announce(&node, life, was_lost).await;
        }
        // A lost node that renews its lease again reports its own status.
        let renews = self.memory().renews_lease(name(&node));
        if !renews && let Some(patch) = plan::status(&node, life, now) {
            let written = self.objects.merge_status(NODES, "", name(&node), &patch).await;
            written.doing("mark the node")?;
            if !condition::is(&node, "Ready", "Unknown") {
                warn!(node = name(&node), ?life, "node does not renew its lease");
                let message = format!("Node {} status is now: NodeNotReady", name(&node));
                self.warn_about(&node, "NodeNotReady", message).await;
            }
        }
        match life {
            NodeLife::Unreachable(_) => self.mark_instances(&node).await,
            NodeLife::Alive | NodeLife::Suspected { .. } | NodeLife::Lost => Ok(()),
        }
    }

    /// Asks other nodes whether they reach a silent one.
    async fn ask(&self, view: &ClusterView, node: &Value) -> Result<(), ReconcileError> {
        let able: Vec<&Value> = {
            let memory = self.memory();
            let can_observe = |own: &&Value| memory.can_observe(&view.facts_of(own));
            view.nodes.iter().filter(can_observe).collect()
        };
        let asked = Suspicion {
            token: clock::rfc3339_micro(clock::now()),
            observers: plan::observers(&able, name(node)),
        };
        info!(node = name(node), observers = ?asked.observers, "node is silent; asking others");
        let written =
            self.objects.merge(NODES, "", name(node), &plan::request_observation(&asked)).await;
        written.doing("ask about a silent node")?;
        self.memory().asked(name(node), asked, Instant::now());
        Ok(())
    }

    async fn announce(&self, node: &Value, life: NodeLife, was_lost: bool) {
        let own = name(node);
        match life {
            NodeLife::Lost if !was_lost => {
                self.memory().declared(own, Instant::now());
                warn!(node = own, "node is declared lost");
                let message = format!(
                    "Node {own} is declared lost: it does not renew its lease, and no other node \
                     reaches it"
                );
                self.warn_about(node, "NodeLost", message).await;
            }
            NodeLife::Alive if was_lost => {
                info!(node = own, "lost node is back");
                let message = format!("Node {own} is back, and its old guests are gone");
                let (client, regarding) = (&self.objects.0, regarding(node));
                let tone = EventType::Normal;
                event::record(client, "node-controller", &regarding, tone, "NodeRejoined", message)
                    .await;
            }
            _ => {}
        }
    }

    async fn warn_about(&self, node: &Value, reason: &str, message: String) {
        event::warn(&self.objects.0, "node-controller", &regarding(node), reason, message).await;
    }

    /// Writes that the state of the guests of a node is unknown.
    async fn mark_instances(&self, node: &Value) -> Result<(), ReconcileError> {
        let label = format!("kubevirt.io/nodeName={}", name(node));
        let instances = self.objects.list(VMIS, "", &label).await.doing("list its instances")?;
        for vmi in &instances {
            let Some(patch) = plan::instance(vmi, name(node), clock::now()) else { continue };
            let written = self.objects.merge(VMIS, namespace(vmi), name(vmi), &patch).await;
            // Gone, or its node is back and has written first.
            if !written.as_ref().is_err_and(|why| is_refused(why, 404) || is_refused(why, 409)) {
                written.doing("mark an instance")?;
            }
        }
        Ok(())
    }
}

fn regarding(node: &Value) -> Regarding<'_> {
    Regarding { api_version: "v1", kind: "Node", namespace: "", name: name(node), uid: uid(node) }
}

impl Reconciler for NodeReconciler {
    type Key = AllNodes;

    async fn reconcile(&self, _: &AllNodes) -> Result<ReconcileResult, ReconcileError> {
        let view = self.view().await?;
        let is_small = view.nodes.len() < 2 && view.nodes.iter().all(plan::is_management);
        let interval = if is_small { REST_INTERVAL } else { RECHECK_INTERVAL };
        let facts = view.facts();
        self.count(&facts, interval).await;
        let mut failure = None;
        for (node, life) in view.nodes.iter().zip(self.judge(&view, &facts)) {
            // One node that cannot be written must not hold the others up.
            if let Err(failed) = self.apply(&view, node, life).await {
                let code = failed.source.code();
                failure = failure.or((!matches!(code, Some(404 | 409))).then_some(failed));
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(ReconcileResult::Again(interval)),
        }
    }
}

#[cfg(test)]
mod tests;
