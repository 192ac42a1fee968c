//! Phases of the maintenance of a node, the next actions and the reported condition: pure.
//!
//! ```text
//!            drain-requested                 no machine left
//!   Off ───────────────────► Requested ─► Running ─────────► Completed
//!    ▲                           │ refused   │                   │
//!    │◄──────────────────────────┘           │ annotations gone  │
//!    └──────────────── Ended ◄───────────────┴───────────────────┘
//! ```

use std::time::Duration;

use hci::maintenance::{
    AffectedMachine, COMPLETED, CONDITION, DRAIN_FORCED, DRAIN_REQUESTED, MAINTAIN_STATUS,
    MaintainStrategy, MaintenanceAction, MaintenanceRefusal, RUNNING, STRATEGY_NODE,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{annotation, read};
use crate::record::condition::condition;
use crate::record::fields;

/// Remembers how a machine ran before it was stopped, as Harvester does.
const RUN_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
/// Machines that are named in a message; the rest is counted.
const NAMED: usize = 5;
/// After this the node reports that machines do not leave. Nothing is undone.
const DRAIN_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Phase of the maintenance of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaintenancePhase {
    Off,
    Requested,
    Running,
    Completed,
    /// Its annotations were removed, and machines may still be marked.
    Ended,
}

impl MaintenancePhase {
    pub(super) fn of(node: &Value) -> Self {
        let is_requested = annotation(node, DRAIN_REQUESTED) == Some("true");
        match annotation(node, MAINTAIN_STATUS) {
            Some(COMPLETED) => Self::Completed,
            Some(_) => Self::Running,
            None if is_requested => Self::Requested,
            None if condition::is(node, CONDITION, "True") => Self::Ended,
            None => Self::Off,
        }
    }
}

pub(super) fn is_forced(node: &Value) -> bool {
    annotation(node, DRAIN_FORCED) == Some("true")
}

/// The remaining work on a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DrainPlan<'a> {
    pub(super) evict: Vec<&'a AffectedMachine>,
    pub(super) shut_down: Vec<&'a AffectedMachine>,
    pub(super) blocked: Vec<(&'a AffectedMachine, String)>,
}

impl<'a> DrainPlan<'a> {
    pub(super) fn of(machines: &'a [AffectedMachine], is_forced: bool) -> Self {
        let mut work = Self::default();
        for machine in machines {
            match machine.fate(is_forced) {
                MaintenanceAction::Evict => work.evict.push(machine),
                MaintenanceAction::ShutDown => work.shut_down.push(machine),
                MaintenanceAction::Blocked(obstacle) => {
                    work.blocked.push((machine, obstacle.reason().to_owned()));
                }
            }
        }
        work
    }

    pub(super) fn is_done(&self) -> bool {
        self.evict.is_empty() && self.shut_down.is_empty() && self.blocked.is_empty()
    }

    /// The condition of the node.
    pub(super) fn condition(&self, since: Option<Timestamp>, now: Timestamp) -> Condition {
        let report = Condition::new(CONDITION, "True");
        if self.is_done() {
            return report.because("Completed", "no machine is left on the node");
        }
        let ids = |list: &[&AffectedMachine]| named(list.iter().map(|own| own.id()).collect());
        let mut parts = Vec::new();
        if !self.evict.is_empty() {
            parts.push(format!("migrating {}", ids(&self.evict)));
        }
        if !self.shut_down.is_empty() {
            parts.push(format!("shutting down {}", ids(&self.shut_down)));
        }
        if !self.blocked.is_empty() {
            let each =
                |(own, reason): &(&AffectedMachine, String)| format!("{} ({reason})", own.id());
            let list = named(self.blocked.iter().map(each).collect());
            parts.push(format!("cannot migrate {list}: shut them down, or force maintenance"));
        }
        let waited = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        let is_late = waited.is_some_and(|waited| waited > DRAIN_DEADLINE);
        let reason = if is_late || !self.blocked.is_empty() { "Blocked" } else { "Draining" };
        report.because(reason, parts.join("; "))
    }
}

fn named(mut ids: Vec<String>) -> String {
    let more = ids.len().saturating_sub(NAMED);
    ids.truncate(NAMED);
    let list = ids.join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

fields! {
    struct MachineFields<'a> {
        spec: MachineSpec<'a>,
        status: MachineStatus<'a>,
    }

    struct MachineSpec<'a> {
        run_strategy: &'a str,
    }

    struct MachineStatus<'a> {
        printable_status: &'a str,
    }
}

/// When maintenance of a node began.
pub(super) fn since(node: &Value) -> Option<Timestamp> {
    let own = condition(node, CONDITION).filter(|own| own.status == "True");
    own.and_then(|own| own.last_transition_time.parse().ok())
}

/// Cordons the node and marks it.
pub(super) fn begin() -> Value {
    json!({"metadata": {"annotations": {MAINTAIN_STATUS: RUNNING}}, "spec": {"unschedulable": true}})
}

pub(super) fn complete() -> Value {
    json!({"metadata": {"annotations": {
        MAINTAIN_STATUS: COMPLETED, DRAIN_REQUESTED: null, DRAIN_FORCED: null,
    }}})
}

/// Takes a request back.
pub(super) fn refuse() -> Value {
    json!({"metadata": {"annotations": {DRAIN_REQUESTED: null, DRAIN_FORCED: null}}})
}

pub(super) fn refused(refusal: &MaintenanceRefusal) -> Condition {
    Condition::new(CONDITION, "False").because("Refused", refusal.to_string())
}

pub(super) fn ended() -> Condition {
    Condition::new(CONDITION, "False").because("Disabled", "maintenance mode was disabled")
}

/// The status of a node with a condition, as a patch; nothing if it says so already.
pub(super) fn report(node: &Value, wanted: &Condition, now: Timestamp) -> Option<Value> {
    let mut conditions = condition::of(node);
    let before = conditions.clone();
    condition::set(&mut conditions, wanted, now);
    (conditions != before).then(
        || json!({"metadata": crate::object::version(node), "status": {"conditions": conditions}}),
    )
}

/// Whether a machine that maintenance of `node` shut down is to be started now.
pub(super) fn is_start_due(machine: &Value, node: &str, phase: MaintenancePhase) -> bool {
    let is_marked = annotation(machine, STRATEGY_NODE) == Some(node);
    let is_down = read::<MachineFields<'_>>(machine).status.printable_status == "Stopped";
    let is_early = MaintainStrategy::of(machine) == MaintainStrategy::ShutdownAndRestartAfterEnable;
    is_marked && (is_early && is_down || phase == MaintenancePhase::Ended)
}

/// How a machine is stopped or started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PowerChange {
    Patch(Value),
    /// By the subresource; the patch comes before.
    Act(&'static str, Value),
    Nothing,
}

/// Shuts a machine down; `node` is noted if it is started again later.
pub(super) fn stop(machine: &Value, node: &str) -> PowerChange {
    let is_restarted = MaintainStrategy::of(machine).is_restarted();
    let mut notes = json!({});
    if is_restarted {
        notes[STRATEGY_NODE] = node.into();
    }
    match read::<MachineFields<'_>>(machine).spec.run_strategy {
        "Halted" => PowerChange::Nothing,
        strategy @ ("Always" | "RerunOnFailure" | "Once") => {
            notes[RUN_STRATEGY] = strategy.into();
            PowerChange::Patch(
                json!({"metadata": {"annotations": notes}, "spec": {"runStrategy": "Halted"}}),
            )
        }
        _ => PowerChange::Act("stop", json!({"metadata": {"annotations": notes}})),
    }
}

/// Starts a machine as it ran before.
pub(super) fn start(machine: &Value) -> PowerChange {
    let notes = json!({STRATEGY_NODE: null});
    if read::<MachineFields<'_>>(machine).spec.run_strategy != "Halted" {
        return PowerChange::Act("start", json!({"metadata": {"annotations": notes}}));
    }
    let before = annotation(machine, RUN_STRATEGY).filter(|own| !matches!(*own, "" | "Halted"));
    let strategy = before.unwrap_or("RerunOnFailure");
    PowerChange::Patch(
        json!({"metadata": {"annotations": notes}, "spec": {"runStrategy": strategy}}),
    )
}

#[cfg(test)]
mod tests;
