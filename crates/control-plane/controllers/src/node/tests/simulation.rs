//! Failover under random faults, from a seed: the real decisions about nodes (`memory`, `silence`,
//! `lifecycle`) against a model of nodes, their networks, storage and guests. A step is 100 ms.
//! Checked after each step, by the names of the rules in the design of clusters:
//!
//! - F1: a generation of a volume has one engine.
//! - F6: a machine executes on one node. When a node is given up by mistake, its engine is fenced by
//!   the replicas that it still reaches, and the guest is stopped within [`FENCE_TIME`].
//! - F8: a node is declared lost only after a time in which its renewals would have been seen.
//! - F9: a guest that is cut off from its storage peers is paused before it is started elsewhere.
//! - A node that others reach is not declared lost (the second opinion of the observers).
//! - F14: once the faults are over, every machine runs.
//! - F15: an in-sync set never becomes empty.

mod faults;
mod guests;
mod nodes;

use std::collections::BTreeMap;
use std::time::Duration;

use hci::failover::Suspicion;
use tokio::time::Instant;

use self::guests::SimVm;
use self::nodes::{Service, SimNode};
use crate::node::lifecycle::NodeLife;
use crate::node::memory::{NodeFacts, NodeMemory, RestartPolicy};
use crate::node::plan::OBSERVERS;
use crate::seeded_rng::SeededRng;

const STEP: u64 = 100;
/// Faults begin before this time, and are over at [`CALM`].
const TROUBLE: u64 = 40_000;
const CALM: u64 = 70_000;
const END: u64 = 190_000;
const CHECK_INTERVAL: u64 = 1000;
/// From the first answer of a replica with a newer generation until the guest is stopped, and the
/// step in which it is noticed.
const FENCE_TIME: u64 = 1500;

/// A rule that is left out, to show that the checks notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// Observers report the moment only, as agents of earlier versions do.
    NoUnreachedTime,
    /// No observer is asked.
    NoObservers,
    /// Silence counts while the store takes no writes.
    StalledStoreCounts,
    /// Guests that are cut off run on.
    NoGuard,
}

/// Events that a campaign has to reach, or it proves nothing.
#[derive(Debug, Default)]
struct Outcome {
    declared: u64,
    taken_over: u64,
    paused: u64,
    fenced: u64,
    reached: u64,
}

struct FailoverSimulation {
    now: u64,
    rng: SeededRng,
    sabotage: Sabotage,
    nodes: Vec<SimNode>,
    /// (from, to, service) → the end of the cut.
    cuts: BTreeMap<(usize, usize, Service), u64>,
    store_stalled_until: u64,
    server_frozen_until: u64,
    faults: Vec<(u64, faults::SimFault)>,
    vms: Vec<SimVm>,
    memory: NodeMemory,
    begin: Instant,
    next_check: u64,
    questions: BTreeMap<usize, Suspicion>,
    outcome: Outcome,
    violation: Option<String>,
}

impl FailoverSimulation {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = SeededRng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let count = usize::try_from(3 + rng.below(5)).unwrap_or(3);
        let nodes = (0..count).map(|_| SimNode::default()).collect();
        let faults = faults::schedule(&mut rng, count);
        let vms = (1..count).map(|node| SimVm::new(node, count, &mut rng)).collect();
        Self {
            now: 0,
            rng,
            sabotage,
            nodes,
            cuts: BTreeMap::new(),
            store_stalled_until: 0,
            server_frozen_until: 0,
            faults,
            vms,
            memory: NodeMemory::default(),
            begin: Instant::now(),
            next_check: 0,
            questions: BTreeMap::new(),
            outcome: Outcome::default(),
            violation: None,
        }
    }

    fn run(mut self) -> Result<Outcome, String> {
        while self.now < END {
            self.begin_faults();
            self.step_nodes();
            if self.now >= self.next_check && self.now >= self.server_frozen_until {
                self.next_check = self.now + CHECK_INTERVAL;
                self.reconcile();
            }
            self.step_guests();
            self.check();
            if let Some(violation) = self.violation.take() {
                return Err(format!("at {} ms: {violation}", self.now));
            }
            self.now += STEP;
        }
        match self.vms.iter().position(|vm| vm.executing(&self.nodes, self.now).count() != 1) {
            Some(vm) => Err(format!("F14: machine {vm} does not run: {:?}", self.vms[vm])),
            None => Ok(self.outcome),
        }
    }

    fn store_is_writable(&self) -> bool {
        self.now >= self.store_stalled_until && self.now >= self.server_frozen_until
    }

    fn facts(&self) -> Vec<NodeFacts> {
        let fact = |(index, node): (usize, &SimNode)| NodeFacts {
            name: index.to_string().into(),
            renewed: node.renewed.to_string(),
            lease: Duration::from_secs(6),
            is_management: index == 0,
            is_lost: node.is_lost,
            has_rejoined: node.has_rejoined,
        };
        self.nodes.iter().enumerate().map(fact).collect()
    }

    /// One reconciliation of the node controller.
    fn reconcile(&mut self) {
        let is_writable = self.store_is_writable();
        let counts = is_writable || self.sabotage == Sabotage::StalledStoreCounts;
        let facts = self.facts();
        let now = self.begin + Duration::from_millis(self.now);
        let interval = Duration::from_millis(CHECK_INTERVAL);
        let proven = !self.memory.is_doubtful(&facts, now) || counts;
        self.memory.count_silence(&facts, proven, now, interval);
        let policy = RestartPolicy { may_restart: true, period: None };
        let nodes = &self.nodes;
        let lives = self.memory.judge(&facts, policy, now, |asked, suspect| {
            let suspect: usize = suspect.parse().unwrap_or_default();
            nodes::sightings(nodes, asked, suspect)
        });
        if !is_writable {
            return;
        }
        for (index, life) in lives.into_iter().enumerate() {
            self.apply(index, life, &facts, now);
        }
    }

    fn apply(&mut self, index: usize, life: NodeLife, facts: &[NodeFacts], now: Instant) {
        match life {
            NodeLife::Suspected { ask: true } => {
                let can =
                    |other: &usize| *other != index && self.memory.can_observe(&facts[*other]);
                let observers = (0..facts.len()).filter(can).map(|other| other.to_string());
                let observers = observers.take(OBSERVERS).collect();
                let asked = Suspicion { token: self.now.to_string(), observers };
                self.memory.asked(&facts[index].name, asked.clone(), now);
                self.questions.insert(index, asked);
            }
            NodeLife::Unreachable(_) => self.outcome.reached += 1,
            NodeLife::Lost if !self.nodes[index].is_lost => {
                let silence = self.nodes[index].usable_since_renewal;
                if silence < 3_500 {
                    self.fail(format!(
                        "F8: node {index} is lost after {silence} ms of usable time"
                    ));
                }
                let reached = self.nodes[index].reached_since;
                if reached.is_some_and(|since| self.now - since > 6_000) {
                    self.fail(format!("second opinion: node {index} is lost, and others reach it"));
                }
                self.outcome.declared += 1;
                self.memory.declared(&facts[index].name, now);
                self.nodes[index].is_lost = true;
                self.nodes[index].has_rejoined = false;
                self.questions.remove(&index);
                self.take_over(index);
            }
            NodeLife::Alive => {
                self.nodes[index].is_lost = false;
                self.nodes[index].has_rejoined = false;
                self.questions.remove(&index);
            }
            NodeLife::Suspected { ask: false } | NodeLife::Lost => {}
        }
    }

    fn fail(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }
}

/// How many seeds an ordinary run of the tests takes.
fn seeds() -> u64 {
    std::env::var("SHEAF_FAILOVER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

fn run(seed: u64, sabotage: Sabotage) -> Result<Outcome, String> {
    FailoverSimulation::new(seed, sabotage).run()
}

#[test]
fn no_machine_runs_twice_and_all_run_in_the_end() {
    let mut total = Outcome::default();
    for seed in 0..seeds() {
        match run(seed, Sabotage::None) {
            Ok(outcome) => total.add(&outcome),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    // Without these, the faults would prove nothing.
    let Outcome { declared, taken_over, paused, fenced, reached } = total;
    for (what, count) in [
        ("declared lost", declared),
        ("taken over", taken_over),
        ("paused", paused),
        ("fenced", fenced),
        ("reached by others", reached),
    ] {
        assert!(count > 0, "{what}: {count}");
    }
}

#[test]
fn each_rule_is_needed() {
    // Some need two faults within a second: the search begins shortly before a seed that has them.
    for (sabotage, rule, first) in [
        (Sabotage::NoUnreachedTime, "F9", 150),
        (Sabotage::NoObservers, "second opinion", 0),
        (Sabotage::StalledStoreCounts, "F8", 12_700),
        (Sabotage::NoGuard, "F9", 0),
    ] {
        let found = (first..first + 1000).find_map(|seed| run(seed, sabotage).err());
        let found = found.unwrap_or_default();
        assert!(found.contains(rule), "{sabotage:?}: {found:?}");
    }
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.declared += other.declared;
        self.taken_over += other.taken_over;
        self.paused += other.paused;
        self.fenced += other.fenced;
        self.reached += other.reached;
    }
}
