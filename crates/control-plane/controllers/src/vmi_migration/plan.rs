//! The next step of a migration, by its object and that of its instance. Pure.
//!
//! ```text
//!  ""  ► Pending ► Scheduling ► Scheduled ► PreparingTarget ► TargetReady ► Running ► Succeeded
//!         limits     a target     the instance    the target's     the stream          │
//!         wait       is chosen    names it        QEMU waits       begins              └► Failed
//! ```
//!
//! The instance's `status.migrationState` is written here once, when a target is found, and from
//! then on by the node that has the instance; an abort is only asked for.

use std::time::Duration;

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::v1::{
    MigrationConfiguration, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationState,
};

use super::policy::EffectiveConfiguration;
use crate::event::EventType;
use crate::object::{self, read, text};

/// As many migrations go on at a time, unless the configuration says otherwise.
const PER_CLUSTER: usize = 5;
const OUTBOUND_PER_NODE: usize = 2;
/// A migration that finds no target for so long has failed.
const UNSCHEDULABLE_SECONDS: i64 = 300;
pub(super) const FINALIZER: &str = "kubevirt.io/migrationJobFinalize";
pub(super) const VMI_LABEL: &str = "kubevirt.io/vmi-name";
const FIRST_BACKOFF: Duration = Duration::from_secs(20);
const TARGET_LABEL: &str = "kubevirt.io/migrationTargetNodeName";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MigrationPhase {
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    PreparingTarget,
    TargetReady,
    Running,
    Succeeded,
    Failed,
}

impl MigrationPhase {
    pub(super) fn of(migration: &VirtualMachineInstanceMigration) -> Self {
        let phase = migration.status.as_ref().and_then(|status| status.phase.as_deref());
        match phase {
            Some("Pending") => Self::Pending,
            Some("Scheduling") => Self::Scheduling,
            Some("Scheduled") => Self::Scheduled,
            Some("PreparingTarget") => Self::PreparingTarget,
            Some("TargetReady") => Self::TargetReady,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            _ => Self::Unset,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::PreparingTarget => "PreparingTarget",
            Self::TargetReady => "TargetReady",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Whether it takes part in the limits.
    pub(super) fn is_under_way(self) -> bool {
        self > Self::Pending && !self.is_final()
    }
}

/// The next step of a migration.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MigrationStep {
    /// Nothing before the instance changes.
    Wait,
    /// Its turn has not come.
    Queue,
    /// A target is to be found.
    FindTarget,
    /// The target is announced to the instance; then the phase.
    Announce,
    /// The source is asked to give up.
    RequestAbort,
    Enter(MigrationPhase),
    Fail {
        message: String,
    },
    Succeed,
    /// It is over and its object is to go.
    Release,
}

/// The objects and facts of a migration.
#[derive(Debug)]
pub(super) struct MigrationInput<'a> {
    pub(super) migration: &'a VirtualMachineInstanceMigration,
    pub(super) uid: &'a str,
    pub(super) is_deleting: bool,
    pub(super) vmi: Option<&'a Value>,
    /// Migrations that are under way, by the node that they leave.
    pub(super) under_way: &'a [String],
    pub(super) limits: ParallelLimits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParallelLimits {
    pub(super) cluster: usize,
    pub(super) outbound: usize,
}

impl ParallelLimits {
    pub(super) fn of(config: &MigrationConfiguration) -> Self {
        let positive = |limit: Option<u32>, default: usize| {
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            limit.filter(|limit| *limit > 0).unwrap_or(default)
        };
        Self {
            cluster: positive(config.parallel_migrations_per_cluster, PER_CLUSTER),
            outbound: positive(config.parallel_outbound_migrations_per_node, OUTBOUND_PER_NODE),
        }
    }
}

/// The migration state of an instance.
pub(super) fn state(vmi: &Value) -> VirtualMachineInstanceMigrationState {
    read(&vmi["status"]["migrationState"])
}

fn is_over(state: &VirtualMachineInstanceMigrationState) -> bool {
    state.completed == Some(true) || state.failed == Some(true)
}

pub(super) fn next(seen: &MigrationInput<'_>) -> MigrationStep {
    let phase = MigrationPhase::of(seen.migration);
    if phase.is_final() {
        return if seen.is_deleting { MigrationStep::Release } else { MigrationStep::Wait };
    }
    let Some(vmi) = seen.vmi else {
        return fail("Migration failed because vmi does not exist.");
    };
    let state = state(vmi);
    end(seen, phase, vmi, &state).unwrap_or_else(|| advance(seen, phase, vmi, &state))
}

fn fail(message: &str) -> MigrationStep {
    MigrationStep::Fail { message: message.to_owned() }
}

/// Whether the instance knows of this migration.
fn is_announced(seen: &MigrationInput<'_>, state: &VirtualMachineInstanceMigrationState) -> bool {
    state.migration_uid.as_deref() == Some(seen.uid)
}

/// The step of a migration that ends: done, failed, canceled or taken over.
fn end(
    seen: &MigrationInput<'_>,
    phase: MigrationPhase,
    vmi: &Value,
    state: &VirtualMachineInstanceMigrationState,
) -> Option<MigrationStep> {
    let is_announced = is_announced(seen, state);
    if is_announced && state.completed == Some(true) {
        return Some(if phase < MigrationPhase::Running {
            MigrationStep::Enter(following(phase))
        } else {
            MigrationStep::Succeed
        });
    }
    if is_announced && state.failed == Some(true) {
        let why = state.failure_reason.as_deref().unwrap_or_default();
        return Some(fail(&format!("source node reported migration failed: {why}")));
    }
    if matches!(text(vmi, "/status/phase"), "Succeeded" | "Failed") {
        return Some(fail("Migration failed vmi shutdown during migration."));
    }
    if seen.is_deleting {
        return Some(match (is_announced, state.abort_requested == Some(true)) {
            (false, _) => fail("Migration failed due to being canceled"),
            (true, false) => MigrationStep::RequestAbort,
            (true, true) => MigrationStep::Wait,
        });
    }
    (phase >= MigrationPhase::PreparingTarget && !is_announced).then(|| {
        fail(
            "VMI's migration state was taken over by another migration job during active \
             migration.",
        )
    })
}

/// The way of a migration through its phases.
fn advance(
    seen: &MigrationInput<'_>,
    phase: MigrationPhase,
    vmi: &Value,
    state: &VirtualMachineInstanceMigrationState,
) -> MigrationStep {
    let is_announced = is_announced(seen, state);
    match phase {
        MigrationPhase::Unset => MigrationStep::Enter(MigrationPhase::Pending),
        MigrationPhase::Pending => pending(seen, vmi, state),
        MigrationPhase::Scheduling | MigrationPhase::Scheduled
            if !is_announced && is_on_target(seen.migration, vmi) =>
        {
            fail("Migration failed since the vmi is on its target, the same node, by now.")
        }
        MigrationPhase::Scheduling => MigrationStep::Enter(MigrationPhase::Scheduled),
        MigrationPhase::Scheduled if is_announced => {
            MigrationStep::Enter(MigrationPhase::PreparingTarget)
        }
        MigrationPhase::Scheduled => MigrationStep::Announce,
        MigrationPhase::PreparingTarget => match state.target_node_domain_ready_timestamp {
            Some(_) => MigrationStep::Enter(MigrationPhase::TargetReady),
            None => MigrationStep::Wait,
        },
        MigrationPhase::TargetReady => match state.start_timestamp {
            Some(_) => MigrationStep::Enter(MigrationPhase::Running),
            None => MigrationStep::Wait,
        },
        MigrationPhase::Running | MigrationPhase::Succeeded | MigrationPhase::Failed => {
            MigrationStep::Wait
        }
    }
}

/// Whether a machine was started anew on the node that its migration has chosen.
fn is_on_target(migration: &VirtualMachineInstanceMigration, vmi: &Value) -> bool {
    chosen_target(migration) == Some(text(vmi, "/status/nodeName"))
}

/// Every phase is entered, however quick the nodes are.
fn following(phase: MigrationPhase) -> MigrationPhase {
    match phase {
        MigrationPhase::Unset => MigrationPhase::Pending,
        MigrationPhase::Pending => MigrationPhase::Scheduling,
        MigrationPhase::Scheduling => MigrationPhase::Scheduled,
        MigrationPhase::Scheduled => MigrationPhase::PreparingTarget,
        MigrationPhase::PreparingTarget => MigrationPhase::TargetReady,
        _ => MigrationPhase::Running,
    }
}

fn pending(
    seen: &MigrationInput<'_>,
    vmi: &Value,
    state: &VirtualMachineInstanceMigrationState,
) -> MigrationStep {
    let is_busy = state.migration_uid.is_some() && !is_over(state);
    if text(vmi, "/status/phase") != "Running" || is_busy {
        return MigrationStep::Wait;
    }
    let source = text(vmi, "/status/nodeName");
    let outbound = seen.under_way.iter().filter(|node| *node == source).count();
    if seen.under_way.len() >= seen.limits.cluster || outbound >= seen.limits.outbound {
        return MigrationStep::Queue;
    }
    MigrationStep::FindTarget
}

/// Whether a migration that found no target is given up.
pub(super) fn is_unschedulable(migration: &Value, now: Timestamp) -> bool {
    let created: Option<Timestamp> = text(migration, "/metadata/creationTimestamp").parse().ok();
    created.is_some_and(|time| now.duration_since(time).as_secs() > UNSCHEDULABLE_SECONDS)
}

/// The status of a migration that enters a phase.
pub(super) fn entered(
    migration: &Value,
    phase: MigrationPhase,
    state: Option<&Value>,
    now: Timestamp,
) -> Value {
    let mut all = object::list(migration, "/status/phaseTransitionTimestamps").to_vec();
    if !all.iter().any(|own| own["phase"] == phase.name()) {
        all.push(json!({"phase": phase.name(), "phaseTransitionTimestamp": rfc3339(now)}));
    }
    let mut status = json!({"phase": phase.name(), "phaseTransitionTimestamps": all});
    if let Some(state) = state {
        status["migrationState"] = state.clone();
    }
    json!({"status": status})
}

/// Where a migration goes, as it says itself.
pub(super) fn chosen_target(migration: &VirtualMachineInstanceMigration) -> Option<&str> {
    let state = migration.status.as_ref()?.migration_state.as_ref()?;
    state.target_node.as_deref()
}

/// The instance is to go to `target`; nothing of an earlier migration stays.
pub(super) fn announced(
    vmi: &Value,
    uid: &str,
    target: &str,
    pods: (&str, &str),
    config: &EffectiveConfiguration,
) -> Value {
    let mut meta = object::version(vmi);
    meta.insert("labels".into(), json!({TARGET_LABEL: target}));
    let state = json!({
        "migrationUid": uid, "sourceNode": text(vmi, "/status/nodeName"), "targetNode": target,
        "sourcePod": pods.0, "targetPod": pods.1, "migrationConfiguration": config.values,
        "migrationPolicyName": config.policy,
        "startTimestamp": null, "endTimestamp": null, "completed": null, "failed": null,
        "failureReason": null, "abortRequested": null, "abortStatus": null, "mode": null,
        "targetNodeAddress": null, "targetNodeDomainDetected": null,
        "targetNodeDomainReadyTimestamp": null,
    });
    json!({"metadata": meta, "status": {"migrationState": state}})
}

/// The source is to give up.
pub(super) fn abort(vmi: &Value) -> Value {
    let state = json!({"abortRequested": true, "abortStatus": "Aborting"});
    json!({"metadata": object::version(vmi), "status": {"migrationState": state}})
}

/// The migration of an instance that has to leave its node, if it has none yet.
pub(super) fn evacuation(vmi: &Value, active: usize) -> Option<Value> {
    let node = text(vmi, "/status/evacuationNodeName");
    let is_there = !node.is_empty() && node == text(vmi, "/status/nodeName");
    let is_running = text(vmi, "/status/phase") == "Running" && !object::is_deleting(vmi);
    (is_there && is_running && active == 0).then(|| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"generateName": "kubevirt-evacuation-",
                "annotations": {"kubevirt.io/evacuationMigration": node}},
            "spec": {"vmiName": object::name(vmi)},
        })
    })
}

/// How long the next migration of an evacuation waits after those that failed: 20 s, and twice as
/// long after each.
pub(super) fn evacuation_delay(migrations: &[Value], now: Timestamp) -> Option<Duration> {
    let failed = |own: &&Value| text(own, "/status/phase") == "Failed";
    let ended = |own: &Value| -> Option<Timestamp> {
        let entered = object::list(own, "/status/phaseTransitionTimestamps");
        let end = entered.iter().find(|each| each["phase"] == "Failed")?;
        text(end, "/phaseTransitionTimestamp").parse().ok()
    };
    let ends: Vec<Timestamp> = migrations.iter().filter(failed).filter_map(ended).collect();
    let last = ends.iter().max()?;
    let power = u32::try_from(ends.len()).unwrap_or(u32::MAX).saturating_sub(1).min(5);
    let wait = FIRST_BACKOFF * 2_u32.pow(power);
    let passed = Duration::try_from(now.duration_since(*last)).unwrap_or_default();
    wait.checked_sub(passed).filter(|left| !left.is_zero())
}

/// The event when a phase is entered.
pub(super) fn event(phase: MigrationPhase) -> Option<(EventType, &'static str, &'static str)> {
    match phase {
        MigrationPhase::Scheduled => Some((
            EventType::Normal,
            "SuccessfulHandOver",
            "Migration target pod is ready for preparation by virt-handler.",
        )),
        MigrationPhase::Succeeded => Some((
            EventType::Normal,
            "SuccessfulMigration",
            "Source node reported migration succeeded",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
