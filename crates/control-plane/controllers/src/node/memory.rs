//! The state of nodes between two checks: their silence, the questions about them, and the
//! declarations. Pure: time is given. All of it is lost with the process, which gives every node a
//! fresh window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hci::failover::{Sighting, Suspicion};
use tokio::time::Instant;

use super::lifecycle::{
    NodeEvidence, NodeLife, RENEWED_WITHIN, ask_after, is_mass_outage, transition,
};
use super::silence::{LeaseReading, SilenceWindow};

/// A node, as its objects describe it.
#[derive(Debug, Clone)]
pub(super) struct NodeFacts {
    pub(super) name: Arc<str>,
    /// `renewTime` of its lease; empty without one.
    pub(super) renewed: String,
    /// How long its lease is valid.
    pub(super) lease: Duration,
    pub(super) is_management: bool,
    /// It is declared lost.
    pub(super) is_lost: bool,
    /// It was declared lost, and reports that no guest of a finished instance runs on it.
    pub(super) has_rejoined: bool,
}

/// When nodes may be declared lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestartPolicy {
    pub(super) may_restart: bool,
    /// How long a node has to be silent at least, if the settings say so.
    pub(super) period: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct NodeMemory {
    window: SilenceWindow,
    last_check: Option<(Instant, Duration)>,
    asked: BTreeMap<Arc<str>, (Suspicion, Instant)>,
    declared: BTreeMap<Arc<str>, Instant>,
}

impl NodeMemory {
    /// Whether the store has to prove that it takes writes before silence is counted.
    pub(super) fn is_doubtful(&self, nodes: &[NodeFacts], now: Instant) -> bool {
        let elapsed = self.last_check.map_or(Duration::ZERO, |(at, _)| now.duration_since(at));
        nodes.iter().any(|node| self.window.is_doubtful(&node.name, &node.renewed, elapsed))
    }

    /// Counts the silence of all nodes since the last check. `interval`: until the next one.
    pub(super) fn count_silence(
        &mut self,
        nodes: &[NodeFacts],
        store_is_writable: bool,
        now: Instant,
        interval: Duration,
    ) {
        let renewals =
            nodes.iter().map(|node| (Arc::clone(&node.name), node.renewed.clone())).collect();
        let before = self.last_check.replace((now, interval));
        let (elapsed, interval) = before.map_or((Duration::ZERO, interval), |(at, interval)| {
            (now.duration_since(at), interval)
        });
        let renewals: &BTreeMap<Arc<str>, String> = &renewals;
        self.window.read(&LeaseReading { elapsed, interval, store_is_writable, renewals });
        self.asked.retain(|node, _| renewals.contains_key(node));
        self.declared.retain(|node, _| renewals.contains_key(node));
    }

    /// The current state of each node. `sightings`: the answers to a question about a node.
    pub(super) fn judge(
        &mut self,
        nodes: &[NodeFacts],
        policy: RestartPolicy,
        now: Instant,
        sightings: impl Fn(&Suspicion, &str) -> Vec<Option<Sighting>>,
    ) -> Vec<NodeLife> {
        let known = nodes.iter().filter(|node| !node.is_lost);
        let silent = known.clone().filter(|node| self.window.of(&node.name) >= node.lease);
        let is_mass = is_mass_outage(silent.count(), known.count());
        // Of several management nodes, the others judge one as any node.
        let is_alone = nodes.iter().filter(|node| node.is_management).count() < 2;
        let mut lives = Vec::new();
        for node in nodes {
            let silence = self.window.of(&node.name);
            if silence < ask_after(node.lease) {
                self.asked.remove(&node.name);
            }
            let asked = self.asked.get(&node.name);
            let observers = asked.map(|(asked, _)| sightings(asked, &node.name));
            let declared = self.declared.get(&node.name);
            let declared = declared.map_or(Duration::MAX, |at| now.duration_since(*at));
            lives.push(transition(&NodeEvidence {
                silence,
                lease: node.lease,
                is_management: is_alone && node.is_management,
                lost_for: node.is_lost.then_some(declared),
                has_rejoined: node.has_rejoined,
                asked_for: asked.map(|(_, at)| now.duration_since(*at)),
                observers: &observers.unwrap_or_default(),
                is_mass,
                may_restart: policy.may_restart,
                period: policy.period,
            }));
        }
        lives
    }

    /// Whether a node renewed its lease lately.
    pub(super) fn renews_lease(&self, node: &str) -> bool {
        self.window.of(node) <= RENEWED_WITHIN
    }

    /// Whether a node can be an observer: its lease is valid.
    pub(super) fn can_observe(&self, node: &NodeFacts) -> bool {
        self.window.of(&node.name) < node.lease && !node.is_lost
    }

    /// Observers were asked about a node.
    pub(super) fn asked(&mut self, node: &str, asked: Suspicion, now: Instant) {
        self.asked.insert(Arc::from(node), (asked, now));
    }

    /// A node was declared lost.
    pub(super) fn declared(&mut self, node: &str, now: Instant) {
        self.declared.insert(Arc::from(node), now);
    }
}
