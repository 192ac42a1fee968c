//! Migrations of a machine under random faults, from a seed: the real decisions (`next`, `evacuation`,
//! `evacuation_delay`) against a model of the machine's nodes, of an administrator who begins and ends
//! maintenance and aborts migrations, and of a controller that begins anew at any time. A step is one
//! second. Checked:
//!
//! - A migration ends (F13): once the faults are over, all of them are final or gone, and a machine
//!   that is to leave its node has left it if another one can take it.
//! - A machine migrates to another node than its own, and by one migration at a time.

use super::*;
use crate::seeded_rng::SeededRng;

const NODES: [&str; 3] = ["a", "b", "c"];
const TROUBLE: i64 = 400;
const END: i64 = 2_000;
/// The source gives up if the target does not answer.
const PEER_TIMEOUT: i64 = 10;
/// A machine of a node that is lost starts elsewhere.
const FAILOVER: i64 = 15;

/// A rule that is left out, to show that the checks notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// A migration goes on to the node that the machine was started on meanwhile.
    SameNode,
    /// A migration that finds no target is never given up.
    NoScheduleDeadline,
    /// A machine that is to leave is not asked again after a failure.
    NoSecondEvacuation,
}

#[derive(Debug, Default)]
struct Outcome {
    succeeded: u64,
    failed: u64,
    aborted: u64,
    evacuated: u64,
    restarted: u64,
}

struct MigrationSimulation {
    now: i64,
    rng: SeededRng,
    sabotage: Sabotage,
    vmi: Value,
    migrations: Vec<Value>,
    made: u64,
    down_until: [i64; 3],
    down_since: [i64; 3],
    cordoned: [bool; 3],
    /// When the source or the target takes its next step.
    agent_at: i64,
    outcome: Outcome,
    violation: Option<String>,
}

fn fresh(node: &str) -> Value {
    json!({"metadata": {"name": "v", "resourceVersion": "1"},
        "status": {"phase": "Running", "nodeName": node}})
}

fn merge(object: &mut Value, patch: &Value) {
    let (Some(into), Some(from)) = (object.as_object_mut(), patch.as_object()) else {
        *object = patch.clone();
        return;
    };
    for (key, value) in from {
        match value {
            Value::Null => drop(into.remove(key)),
            Value::Object(_) => {
                let own = into.entry(key.clone()).or_insert_with(|| json!({}));
                if !own.is_object() {
                    *own = json!({});
                }
                merge(own, value);
            }
            _ => drop(into.insert(key.clone(), value.clone())),
        }
    }
}

impl MigrationSimulation {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = SeededRng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let vmi = fresh(NODES[rng.index(3)]);
        Self {
            now: 0,
            rng,
            sabotage,
            vmi,
            migrations: Vec::new(),
            made: 0,
            down_until: [0; 3],
            down_since: [0; 3],
            cordoned: [false; 3],
            agent_at: 0,
            outcome: Outcome::default(),
            violation: None,
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + self.now).unwrap()
    }

    fn run(mut self) -> Result<Outcome, String> {
        while self.now < END {
            if self.now < TROUBLE {
                self.trouble();
            } else {
                self.end_maintenance(2);
            }
            self.fail_over();
            self.step_nodes();
            // The controller is away now and then.
            if self.now >= TROUBLE || !self.rng.chance(20) {
                self.step_controller();
            }
            if let Some(violation) = self.violation.take() {
                return Err(format!("at {} s: {violation}", self.now));
            }
            self.now += 1;
        }
        let is_open = |own: &&Value| !MigrationPhase::of(&read(own)).is_final();
        if let Some(open) = self.migrations.iter().find(is_open) {
            return Err(format!("F13: a migration does not end: {open} of {}", self.vmi));
        }
        let node = text(&self.vmi, "/status/nodeName");
        if text(&self.vmi, "/status/evacuationNodeName") == node {
            return Err(format!("F13: the machine stays on {node}"));
        }
        Ok(self.outcome)
    }

    fn index(&self) -> usize {
        let node = text(&self.vmi, "/status/nodeName");
        NODES.iter().position(|own| *own == node).unwrap()
    }

    fn is_up(&self, node: usize) -> bool {
        self.now >= self.down_until[node]
    }

    fn trouble(&mut self) {
        let node = self.rng.index(3);
        match self.rng.below(100) {
            0 if self.is_up(node) => {
                self.down_since[node] = self.now;
                self.down_until[node] = self.now + 1 + i64::try_from(self.rng.below(60)).unwrap();
            }
            // Maintenance begins or ends.
            1 => {
                self.cordoned[node] = true;
                if self.index() == node {
                    self.vmi["status"]["evacuationNodeName"] = NODES[node].into();
                    self.outcome.evacuated += 1;
                }
            }
            2 => self.end_maintenance(node),
            3 => self.migrate(json!({})),
            4 => {
                for migration in &mut self.migrations {
                    self.outcome.aborted +=
                        u64::from(!MigrationPhase::of(&read(migration)).is_final());
                    migration["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                }
            }
            _ => {}
        }
    }

    fn end_maintenance(&mut self, node: usize) {
        self.cordoned[node] = false;
        if text(&self.vmi, "/status/evacuationNodeName") == NODES[node] {
            merge(&mut self.vmi, &json!({"status": {"evacuationNodeName": null}}));
        }
    }

    /// Admission takes one migration of a machine at a time.
    fn migrate(&mut self, mut made: Value) {
        if self.active() > 0 {
            return;
        }
        self.made += 1;
        let meta = json!({"name": format!("m{}", self.made), "uid": format!("u{}", self.made),
            "creationTimestamp": rfc3339(self.time())});
        merge(&mut made, &json!({"metadata": meta, "spec": {"vmiName": "v"}, "status": {}}));
        self.migrations.push(made);
    }

    fn active(&self) -> usize {
        let is_active = |own: &&Value| !MigrationPhase::of(&read(own)).is_final();
        self.migrations.iter().filter(is_active).count()
    }

    /// The machine of a node that is lost is started on another one, as another instance.
    fn fail_over(&mut self) {
        let node = self.index();
        if self.is_up(node) || self.now < self.down_since[node] + FAILOVER {
            return;
        }
        let free = (0..3).filter(|own| *own != node && self.is_up(*own) && !self.cordoned[*own]);
        let free: Vec<usize> = free.collect();
        if !free.is_empty() {
            self.vmi = fresh(NODES[free[self.rng.index(free.len())]]);
            self.outcome.restarted += 1;
        }
    }

    /// The source drives the migration; without it, nothing happens.
    fn step_nodes(&mut self) {
        let own = state(&self.vmi);
        let is_idle = own.migration_uid.is_none() || is_over(&own);
        if is_idle || !self.is_up(self.index()) {
            self.agent_at = self.now + PEER_TIMEOUT;
            return;
        }
        let target = NODES.iter().position(|node| Some(*node) == own.target_node.as_deref());
        let fails = |why: &str| json!({"failed": true, "failureReason": why});
        let can_go = target.is_some_and(|target| self.is_up(target));
        let change = match () {
            () if own.abort_requested == Some(true) => fails("aborted"),
            () if !can_go && self.now < self.agent_at => return,
            () if !can_go => fails("the target does not answer"),
            () if self.now < TROUBLE && self.rng.chance(3) => fails("QEMU"),
            () if !self.rng.chance(20) => return,
            () if own.target_node_domain_ready_timestamp.is_none() => {
                json!({"targetNodeDomainReadyTimestamp": rfc3339(self.time())})
            }
            () if own.start_timestamp.is_none() => json!({"startTimestamp": rfc3339(self.time())}),
            () => {
                let node = own.target_node.as_deref();
                merge(&mut self.vmi, &json!({"status": {"nodeName": node}}));
                json!({"completed": true})
            }
        };
        self.agent_at = self.now + PEER_TIMEOUT;
        merge(&mut self.vmi, &json!({"status": {"migrationState": change}}));
    }

    fn step_controller(&mut self) {
        if let Some(made) = evacuation(&self.vmi, self.active()) {
            let again = self.migrations.iter().any(|own| own["status"]["phase"] == "Failed");
            let is_asked = self.sabotage != Sabotage::NoSecondEvacuation || !again;
            if is_asked && evacuation_delay(&self.migrations, self.time()).is_none() {
                self.migrate(made);
            }
        }
        for index in 0..self.migrations.len() {
            let object = self.migrations[index].clone();
            self.step_migration(index, &object);
        }
        let is_gone = |own: &Value| {
            own["metadata"]["deletionTimestamp"].is_string()
                && MigrationPhase::of(&read(own)).is_final()
        };
        self.migrations.retain(|own| !is_gone(own));
    }

    fn step_migration(&mut self, index: usize, object: &Value) {
        let migration: VirtualMachineInstanceMigration = read(object);
        let uid = object::uid(object).to_owned();
        let step = next(&MigrationInput {
            migration: &migration,
            uid: &uid,
            is_deleting: object["metadata"]["deletionTimestamp"].is_string(),
            vmi: Some(&self.vmi),
            under_way: &[],
            limits: ParallelLimits::of(&MigrationConfiguration::default()),
        });
        let step = match (step, chosen_target(&migration)) {
            // As it was decided before.
            (MigrationStep::Fail { message }, Some(_))
                if self.sabotage == Sabotage::SameNode && message.contains("same node") =>
            {
                MigrationStep::Announce
            }
            (step, _) => step,
        };
        match step {
            MigrationStep::Wait | MigrationStep::Queue | MigrationStep::Release => {}
            MigrationStep::FindTarget => self.find_target(index, object, &uid),
            MigrationStep::Announce => self.announce(index, &migration, &uid),
            MigrationStep::RequestAbort => {
                let patch = abort(&self.vmi);
                merge(&mut self.vmi, &patch);
            }
            MigrationStep::Enter(phase) => self.enter(index, phase, None),
            MigrationStep::Fail { .. } => {
                self.outcome.failed += 1;
                self.enter(index, MigrationPhase::Failed, None);
            }
            MigrationStep::Succeed => {
                self.outcome.succeeded += 1;
                merge(&mut self.vmi, &json!({"status": {"evacuationNodeName": null}}));
                self.enter(index, MigrationPhase::Succeeded, None);
            }
        }
    }

    fn enter(&mut self, index: usize, phase: MigrationPhase, state: Option<&Value>) {
        let patch = entered(&self.migrations[index], phase, state, self.time());
        merge(&mut self.migrations[index], &patch);
    }

    fn find_target(&mut self, index: usize, object: &Value, uid: &str) {
        let source = self.index();
        let free = (0..3).filter(|own| *own != source && self.is_up(*own) && !self.cordoned[*own]);
        let free: Vec<usize> = free.collect();
        if !free.is_empty() {
            let target = NODES[free[self.rng.index(free.len())]];
            let state = json!({"migrationUid": uid, "targetNode": target});
            self.enter(index, MigrationPhase::Scheduling, Some(&state));
        } else if is_unschedulable(object, self.time())
            && self.sabotage != Sabotage::NoScheduleDeadline
        {
            self.outcome.failed += 1;
            self.enter(index, MigrationPhase::Failed, None);
        }
    }

    fn announce(&mut self, index: usize, migration: &VirtualMachineInstanceMigration, uid: &str) {
        let Some(target) = chosen_target(migration) else {
            return self.enter(index, MigrationPhase::Pending, None);
        };
        let own = state(&self.vmi);
        if target == text(&self.vmi, "/status/nodeName") {
            self.violation = Some(format!("the machine migrates from {target} to {target}"));
        }
        if own.migration_uid.is_some() && !is_over(&own) {
            self.violation = Some("two migrations of one machine".to_owned());
        }
        let config = EffectiveConfiguration::default();
        let patch = announced(&self.vmi, uid, target, ("p", "q"), &config);
        merge(&mut self.vmi, &patch);
        self.enter(index, MigrationPhase::PreparingTarget, None);
    }
}

/// How many seeds an ordinary run of the tests takes.
fn seeds() -> u64 {
    std::env::var("SHEAF_MIGRATION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

fn run(seed: u64, sabotage: Sabotage) -> Result<Outcome, String> {
    MigrationSimulation::new(seed, sabotage).run()
}

#[test]
fn migrations_end_whatever_fails() {
    let mut total = Outcome::default();
    for seed in 0..seeds() {
        match run(seed, Sabotage::None) {
            Ok(outcome) => {
                total.succeeded += outcome.succeeded;
                total.failed += outcome.failed;
                total.aborted += outcome.aborted;
                total.evacuated += outcome.evacuated;
                total.restarted += outcome.restarted;
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    // Without these, the faults would prove nothing.
    let Outcome { succeeded, failed, aborted, evacuated, restarted } = total;
    for (what, count) in [
        ("succeeded", succeeded),
        ("failed", failed),
        ("aborted", aborted),
        ("evacuated", evacuated),
        ("restarted", restarted),
    ] {
        assert!(count > 0, "{what}: {count}");
    }
}

/// The check that notices the absence of each rule, and a seed that needs it.
const RULES: [(Sabotage, &str, u64); 3] = [
    (Sabotage::SameNode, "migrates from", 12),
    (Sabotage::NoScheduleDeadline, "does not end", 26),
    (Sabotage::NoSecondEvacuation, "stays on", 41),
];

#[test]
fn each_rule_is_needed() {
    for (sabotage, rule, seed) in RULES {
        let found = run(seed, sabotage).err().unwrap_or_default();
        assert!(found.contains(rule), "{sabotage:?}: {found:?}");
    }
}
