//! The next step that a machine's run strategy requires.
//!
//! [`decide`] is the whole state machine: the wanted state, the existing instance, the first
//! pending request, and the remaining delay of a start. Beside it the computation of the delay: a
//! guest that fails before it ever ran is started again after 10 s, 40 s, 90 s … up to five
//! minutes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition;
use crate::state::{InstancePhase, RunStrategy, StateChangeRequest, has_run, is_deleting, text};

/// All that the next step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSituation {
    pub strategy: RunStrategy,
    /// The strategy that was last acted on; nothing before the first start.
    pub last: Option<RunStrategy>,
    pub instance: Option<Instance>,
    pub request: Option<StateChangeRequest>,
    /// Seconds until the next start is allowed.
    pub retry_in: i64,
    /// The machine has to be repaired before it may start.
    pub held: bool,
}

/// The instance of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub phase: InstancePhase,
    pub deleting: bool,
    /// It waits for a guest from elsewhere.
    pub receiving: bool,
    /// Its migration from or to another cluster.
    pub journey: Option<CrossClusterMigration>,
}

/// A migration between clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossClusterMigration {
    UnderWay,
    Done,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAction {
    Nothing,
    /// Create the instance.
    Start {
        paused: bool,
    },
    /// Delete the instance.
    Stop,
    /// Delete the instance and ask for a start (see [`start_request`]).
    StopAndAskForStart,
    /// Check again after this many seconds.
    Wait {
        seconds: i64,
    },
    /// Write another strategy into the machine.
    Become(RunStrategy),
    /// Write back the strategy that the machine had before it waited for a guest.
    BecomeWhatItWas,
    /// There is an instance that does not wait for a guest although it should.
    Stray,
}

/// How long to wait for the end of a migration to be seen.
const JOURNEY_SECONDS: i64 = 2;

impl RunSituation {
    /// Reads a machine and its instance; nothing if the strategy is unknown.
    pub fn of(vm: &Value, vmi: Option<&Value>, now: Timestamp) -> Option<Self> {
        Some(Self {
            strategy: RunStrategy::of(vm)?,
            last: RunStrategy::parse(text(vm, "/status/runStrategy")),
            instance: vmi.map(Instance::of),
            request: StateChangeRequest::of(vm, vmi),
            retry_in: retry_in(vm, now),
            held: condition::is_true(vm, "ManualRecoveryRequired"),
        })
    }

    fn start(self) -> RunAction {
        if self.held {
            return RunAction::Nothing;
        }
        RunAction::Start {
            paused: self.request == Some(StateChangeRequest::Start { paused: true }),
        }
    }

    fn start_when_allowed(self) -> RunAction {
        if self.retry_in > 0 {
            return RunAction::Wait { seconds: self.retry_in };
        }
        self.start()
    }

    fn wants_start(self) -> bool {
        matches!(self.request, Some(StateChangeRequest::Start { .. }))
    }
}

impl Instance {
    fn of(vmi: &Value) -> Self {
        let state = &vmi["status"]["migrationState"];
        let abroad = ["sourceState", "targetState"]
            .iter()
            .any(|side| state[side]["syncAddress"].is_string());
        Self {
            phase: InstancePhase::of(vmi),
            deleting: is_deleting(vmi),
            receiving: vmi["metadata"]["annotations"]["kubevirt.io/create-migration-target"]
                == "true",
            journey: match state["completed"] == true {
                true if abroad => Some(CrossClusterMigration::Done),
                false if abroad => Some(CrossClusterMigration::UnderWay),
                _ => None,
            },
        }
    }
}

/// The next step for a machine that is not being deleted.
pub fn decide(now: RunSituation) -> RunAction {
    use RunStrategy as S;
    let stop_asked = now.request == Some(StateChangeRequest::Stop);
    match (now.strategy, now.instance) {
        (S::Always, Some(vmi)) if stop_asked || vmi.phase.is_final() => match vmi.journey {
            // The guest lives elsewhere now; starting it here too would be a second one.
            Some(CrossClusterMigration::Done) => RunAction::Become(S::Halted),
            Some(CrossClusterMigration::UnderWay) => RunAction::Wait { seconds: JOURNEY_SECONDS },
            None => stop(vmi),
        },
        (S::Always, Some(_)) => RunAction::Nothing,
        (S::Always, None) => now.start_when_allowed(),

        (S::RerunOnFailure, Some(vmi)) => match vmi.phase {
            _ if vmi.deleting => RunAction::Nothing,
            InstancePhase::Failed => RunAction::StopAndAskForStart,
            InstancePhase::Succeeded => RunAction::Stop,
            _ if stop_asked => RunAction::Stop,
            _ => RunAction::Nothing,
        },
        (S::RerunOnFailure, None) if now.wants_start() || now.last != Some(S::RerunOnFailure) => {
            now.start_when_allowed()
        }
        (S::RerunOnFailure, None) => RunAction::Nothing,

        (S::Manual, Some(vmi)) if stop_asked => stop(vmi),
        (S::Manual, None) if now.wants_start() => now.start(),
        (S::Manual, _) => RunAction::Nothing,

        (S::Halted, Some(vmi)) => stop(vmi),
        (S::Halted, None) if now.wants_start() => RunAction::Become(S::Always),
        (S::Halted, None) => RunAction::Nothing,

        (S::Once, Some(_)) => RunAction::Nothing,
        (S::Once, None) => now.start(),

        (S::WaitAsReceiver, None) => now.start(),
        (S::WaitAsReceiver, Some(vmi)) if vmi.receiving => RunAction::Nothing,
        (S::WaitAsReceiver, Some(Instance { journey: Some(CrossClusterMigration::Done), .. })) => {
            RunAction::BecomeWhatItWas
        }
        (S::WaitAsReceiver, Some(_)) => RunAction::Stray,
    }
}

fn stop(vmi: Instance) -> RunAction {
    if vmi.deleting { RunAction::Nothing } else { RunAction::Stop }
}

/// Whether the machine is on its way to a running guest, or has one.
pub fn is_set_to_start(now: RunSituation) -> bool {
    match (now.strategy, now.instance) {
        (RunStrategy::Always, _) => true,
        (RunStrategy::Halted | RunStrategy::WaitAsReceiver, _) => false,
        (RunStrategy::Manual, Some(_)) => now.request != Some(StateChangeRequest::Stop),
        (RunStrategy::Manual, None) => now.wants_start(),
        (RunStrategy::RerunOnFailure, Some(vmi)) => vmi.phase != InstancePhase::Succeeded,
        (RunStrategy::RerunOnFailure, None) => {
            now.wants_start() || now.last != Some(RunStrategy::RerunOnFailure)
        }
        (RunStrategy::Once, instance) => instance.is_none(),
    }
}

/// Whether the first request of a machine is done with, so that the next one counts.
pub fn is_request_done(vm: &Value, vmi: Option<&Value>) -> bool {
    let first = &vm["status"]["stateChangeRequests"][0];
    match (first["action"].as_str(), vmi) {
        (Some("Stop"), None) => true,
        (Some("Stop"), Some(vmi)) => {
            first["uid"].is_null() || first["uid"] != vmi["metadata"]["uid"]
        }
        (Some("Start"), Some(vmi)) => !is_deleting(vmi) && !InstancePhase::of(vmi).is_final(),
        _ => false,
    }
}

/// The requests of a machine with one more that asks for a start.
pub fn with_start_request(vm: &Value) -> Vec<Value> {
    let mut requests = crate::state::list(&vm["status"]["stateChangeRequests"]).to_vec();
    requests.push(json!({"action": "Start"}));
    requests
}

/// Seconds until the machine may be started again after failures.
pub fn retry_in(vm: &Value, now: Timestamp) -> i64 {
    let after = text(vm, "/status/startFailure/retryAfterTimestamp");
    after.parse::<Timestamp>().map_or(0, |after| (after.as_second() - now.as_second()).max(0))
}

/// The longest time between two tries.
const MOST_SECONDS: i64 = 300;
const STEP_SECONDS: i64 = 10;

/// How long to wait after so many failures in a row. Up to half of it again is added by
/// chance (`random` is any number), so that machines that failed together part.
pub fn delay_seconds(failures: i64, random: u64) -> i64 {
    let failures = failures.clamp(1, 100);
    let delay = STEP_SECONDS * failures * failures;
    let spread = i64::try_from(random % (delay / 2 + 1).unsigned_abs()).unwrap_or_default();
    (delay + spread).min(MOST_SECONDS)
}

/// The new `status.startFailure` of a machine; null if it has none.
pub fn start_failure(vm: &Value, vmi: Option<&Value>, now: Timestamp, random: u64) -> Value {
    let known = &vm["status"]["startFailure"];
    let restarts = matches!(
        RunStrategy::of(vm),
        Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once)
    );
    if !restarts || vmi.is_some_and(has_run) {
        return Value::Null;
    }
    // Its instance was deleted and no other was requested: there is no next try to put off.
    let starts = || RunSituation::of(vm, None, now).is_none_or(is_set_to_start);
    if vmi.is_none() && !starts() {
        return Value::Null;
    }
    let Some(vmi) = vmi.filter(|vmi| InstancePhase::of(vmi).is_final()) else {
        return known.clone();
    };
    let uid = &vmi["metadata"]["uid"];
    if known.is_object() && known["lastFailedVMIUID"] == *uid {
        return known.clone();
    }
    let count = known["consecutiveFailCount"].as_i64().unwrap_or_default() + 1;
    let after = now.as_second() + delay_seconds(count, random);
    let after = Timestamp::from_second(after).unwrap_or(now);
    json!({
        "consecutiveFailCount": count,
        "lastFailedVMIUID": uid,
        "retryAfterTimestamp": after.to_string(),
    })
}

#[cfg(test)]
mod tests;
