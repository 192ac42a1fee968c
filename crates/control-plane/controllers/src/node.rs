//! Nodes that fall silent: their condition, their taints, and the instances on them.
//!
//! Leases are read every second and not watched: a renewal needs no reaction. `silence` measures
//! how long a node has been silent, `lifecycle` decides the next step, and here it is carried out
//! for all nodes at once, because the number of silent nodes is part of the decision.

mod lifecycle;
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

use self::lifecycle::{HEARD, NodeEvidence, NodeLife, is_mass_outage, transition};
use self::silence::{LeaseReading, SilenceWindow};
use self::store_check::StoreCheck;
use crate::condition;
use crate::event::{self, About, EventType};
use crate::object::{name, namespace, text, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS, is_refused};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");
const LEASE_NAMESPACE: &str = "kube-node-lease";
const POLICY: &str = "vm-force-reset-policy";
/// How often leases are read while there are nodes that could be lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
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

/// The state of earlier reconciliations. All of it is lost with the process, which gives every
/// node a fresh window.
#[derive(Debug, Default)]
struct NodeMemory {
    window: SilenceWindow,
    last_look: Option<(Instant, Duration)>,
    asked: BTreeMap<Arc<str>, (Suspicion, Instant)>,
    declared: BTreeMap<Arc<str>, Instant>,
}

/// One look at all nodes.
struct ClusterView {
    nodes: Vec<Value>,
    leases: BTreeMap<Arc<str>, Value>,
    policy: ForceResetPolicy,
    /// How long a node has to be silent at least, if somebody chose that.
    period: Option<Duration>,
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
        let is_chosen = setting.as_ref().is_some_and(|own| !text(own, "/value").is_empty());
        let period = is_chosen.then(|| Duration::from_secs(policy.period));
        let leases = leases.into_iter().map(|lease| (Arc::from(name(&lease)), lease)).collect();
        Ok(ClusterView { nodes, leases, policy, period })
    }

    /// Counts the silence of all nodes since the last look.
    async fn count(&self, view: &ClusterView, interval: Duration) {
        let doubts = self.memory().window.is_doubtful();
        let store_is_writable = !doubts || self.store.is_writable().await;
        if !store_is_writable {
            warn!("store does not take writes: no node is declared lost meanwhile");
        }
        let renewal = |node: &Value| {
            let lease = view.leases.get(name(node));
            let time = lease.map_or("", |lease| text(lease, "/spec/renewTime"));
            (Arc::from(name(node)), time.to_owned())
        };
        let renewals = view.nodes.iter().map(renewal).collect();
        let mut memory = self.memory();
        let now = Instant::now();
        let before = memory.last_look.replace((now, interval));
        let (elapsed, interval) = before.map_or((Duration::ZERO, interval), |(at, interval)| {
            (now.duration_since(at), interval)
        });
        memory.window.read(&LeaseReading {
            elapsed,
            interval,
            store_is_writable,
            renewals: &renewals,
        });
        memory.asked.retain(|node, _| renewals.contains_key(node));
        memory.declared.retain(|node, _| renewals.contains_key(node));
    }

    /// The current state of each node.
    fn judge(&self, view: &ClusterView) -> Vec<NodeLife> {
        let mut memory = self.memory();
        let by_name: BTreeMap<&str, &Value> =
            view.nodes.iter().map(|node| (name(node), node)).collect();
        let lease = |node: &Value| plan::lease_duration(view.leases.get(name(node)));
        let known: Vec<&Value> =
            view.nodes.iter().filter(|node| plan::lost_token(node).is_none()).collect();
        let silent = known.iter().filter(|node| memory.window.of(name(node)) >= lease(node));
        let is_mass = is_mass_outage(silent.count(), known.len());
        // Of several management nodes, the others judge one as any node.
        let is_alone = view.nodes.iter().filter(|node| plan::is_management(node)).count() < 2;
        let mut lives = Vec::new();
        for node in &view.nodes {
            let own = name(node);
            let silence = memory.window.of(own);
            if silence < lease(node) {
                memory.asked.remove(own);
            }
            let asked = memory.asked.get(own);
            let observers =
                asked.map(|(asked, _)| plan::sightings(&by_name, asked, own)).unwrap_or_default();
            let declared = memory.declared.get(own).map_or(Duration::MAX, Instant::elapsed);
            lives.push(transition(&NodeEvidence {
                silence,
                lease: lease(node),
                is_management: is_alone && plan::is_management(node),
                lost_for: plan::lost_token(node).map(|_| declared),
                has_rejoined: plan::has_rejoined(node),
                asked_for: asked.map(|(_, at)| at.elapsed()),
                observers: &observers,
                is_mass,
                may_restart: view.policy.enable,
                period: view.period,
            }));
        }
        lives
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
        // A lost node that is heard again speaks for itself.
        let is_heard = self.memory().window.of(name(&node)) <= HEARD;
        if !is_heard && let Some(patch) = plan::status(&node, life, now) {
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
        let heard: Vec<&Value> = {
            let memory = self.memory();
            let is_heard = |own: &&Value| {
                let lease = plan::lease_duration(view.leases.get(name(own)));
                memory.window.of(name(own)) < lease && plan::lost_token(own).is_none()
            };
            view.nodes.iter().filter(is_heard).collect()
        };
        let asked = Suspicion {
            token: clock::rfc3339_micro(clock::now()),
            observers: plan::observers(&heard, name(node)),
        };
        info!(node = name(node), observers = ?asked.observers, "node is silent; asking others");
        let written = self.objects.merge(NODES, "", name(node), &plan::ask(&asked)).await;
        written.doing("ask about a silent node")?;
        self.memory().asked.insert(Arc::from(name(node)), (asked, Instant::now()));
        Ok(())
    }

    async fn announce(&self, node: &Value, life: NodeLife, was_lost: bool) {
        let own = name(node);
        match life {
            NodeLife::Lost if !was_lost => {
                self.memory().declared.insert(Arc::from(own), Instant::now());
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
                let (client, about) = (&self.objects.0, about(node));
                let tone = EventType::Normal;
                event::record(client, "node-controller", &about, tone, "NodeRejoined", message)
                    .await;
            }
            _ => {}
        }
    }

    async fn warn_about(&self, node: &Value, reason: &str, message: String) {
        event::warn(&self.objects.0, "node-controller", &about(node), reason, message).await;
    }

    /// Writes that nobody knows how the guests of a node are.
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

fn about(node: &Value) -> About<'_> {
    About { api_version: "v1", kind: "Node", namespace: "", name: name(node), uid: uid(node) }
}

impl Reconciler for NodeReconciler {
    type Key = AllNodes;

    async fn reconcile(&self, _: &AllNodes) -> Result<ReconcileResult, ReconcileError> {
        let view = self.view().await?;
        let is_small = view.nodes.len() < 2 && view.nodes.iter().all(plan::is_management);
        let interval = if is_small { REST_INTERVAL } else { LOOK_INTERVAL };
        self.count(&view, interval).await;
        let mut failure = None;
        for (node, life) in view.nodes.iter().zip(self.judge(&view)) {
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
