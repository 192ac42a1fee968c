//! The effect of start, stop, restart and similar requests on a machine in a given state: the
//! patches that carry a request out, or the error that refuses it.
//!
//! Nothing is written here. Every patch tests what it was decided on, so a change in between
//! makes it fail with a conflict instead of doing the wrong thing.

mod memory_dump;
mod volume;

use serde_json::{Value, json};

use crate::condition;
use crate::refusal::{Refusal, RefusalSubject};
use crate::state::{InstancePhase, RunStrategy, text};
use crate::v1::{MigrateOptions, RestartOptions, StartOptions, StopOptions};

pub use memory_dump::{MemoryDump, dump_claim, dump_memory, remove_memory_dump, small_claim};
pub(crate) use volume::is_hotpluggable;
pub use volume::{Volumes, add_volume, remove_volume};

/// The target of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchTarget {
    Machine,
    MachineStatus,
    Instance,
}

/// A JSON patch; several are sent in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    pub target: PatchTarget,
    pub operations: Vec<Value>,
    /// Takes the patch back if a later one fails.
    pub undo: Vec<Value>,
}

impl Patch {
    fn new(target: PatchTarget, operations: Vec<Value>) -> Self {
        Self { target, operations, undo: Vec::new() }
    }
}

const NOT_RUNNING: &str = "VM is not running";
const INSTANCE_NOT_RUNNING: &str = "VMI is not running";
const RECOVERY: &str = "VM recovery required: Volume migration failed, leaving some volumes pointing to non-consistent targets; manual intervention is needed to reassign them to their original volumes.";

/// Starts a machine that does not run.
pub fn start(
    vm: &Value,
    vmi: Option<&Value>,
    options: &StartOptions,
) -> Result<Vec<Patch>, Refusal> {
    let refuse = |why: &str| Err(RefusalSubject::Machine.conflict(name(vm), why));
    let phase = vmi.map(InstancePhase::of);
    if phase.is_some_and(|phase| {
        !phase.is_final() && !matches!(phase, InstancePhase::Unknown | InstancePhase::Unset)
    }) {
        return refuse("VM is already running");
    }
    if condition::is_true(vm, "ManualRecoveryRequired") {
        return refuse(RECOVERY);
    }
    let paused = options.paused.unwrap_or_default();
    let strategy = strategy(vm)?;
    match (strategy, phase) {
        (RunStrategy::Halted, _) if paused => ask(vm, &[start_request(true)]),
        (RunStrategy::Halted, _) => Ok(vec![set_running(vm, true)]),
        (RunStrategy::RerunOnFailure, Some(InstancePhase::Failed)) => {
            refuse("RerunOnFailure does not support starting VM from failed state")
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, Some(phase)) if phase.is_final() => {
            ask(vm, &[stop_request(vmi), start_request(paused)])
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, _) => ask(vm, &[start_request(paused)]),
        (RunStrategy::Always | RunStrategy::Once, _) => {
            refuse(&format!("{strategy} does not support manual start requests"))
        }
        // The receiver starts by itself; upstream says yes and does nothing.
        (RunStrategy::WaitAsReceiver, _) => Ok(Vec::new()),
    }
}

/// Stops a machine; with a grace period, within that time.
pub fn stop(vm: &Value, vmi: Option<&Value>, options: &StopOptions) -> Result<Vec<Patch>, Refusal> {
    let refuse = |why: &str| Err(RefusalSubject::Machine.conflict(name(vm), why));
    let live = vmi.filter(|vmi| !InstancePhase::of(vmi).is_final());
    let mut patches = Vec::new();
    if let (Some(vmi), Some(seconds)) = (live, options.grace_period) {
        patches.push(set_grace(vmi, seconds));
    }
    match (strategy(vm)?, live) {
        (RunStrategy::Halted | RunStrategy::RerunOnFailure | RunStrategy::Manual, None) => {
            return refuse(NOT_RUNNING);
        }
        (RunStrategy::Halted, Some(vmi)) if !is_shorter(vmi, options.grace_period) => {
            return refuse("Halted only supports manual stop requests with a shorter graceperiod");
        }
        (RunStrategy::Halted | RunStrategy::RerunOnFailure | RunStrategy::Manual, _) => {
            patches.extend(ask(vm, &[stop_request(live)])?);
        }
        (RunStrategy::Always | RunStrategy::Once, _) => patches.push(set_running(vm, false)),
        (RunStrategy::WaitAsReceiver, _) => {}
    }
    Ok(patches)
}

/// Whether a grace period ends earlier than the one that the instance already has.
fn is_shorter(vmi: &Value, wanted: Option<i64>) -> bool {
    let current = vmi["spec"]["terminationGracePeriodSeconds"].as_i64();
    wanted.is_some_and(|wanted| current.is_none_or(|current| wanted < current))
}

/// Stops a machine and starts it again; with a grace period of 0, by force.
pub fn restart(
    vm: &Value,
    vmi: Option<&Value>,
    options: &RestartOptions,
) -> Result<Vec<Patch>, Refusal> {
    match options.grace_period_seconds {
        Some(seconds) if seconds > 0 => {
            return Err(Refusal::bad_request(
                "For force restart, only gracePeriod=0 is supported for now",
            ));
        }
        Some(seconds) if seconds < 0 => {
            return Err(Refusal::bad_request("gracePeriod has to be greater or equal to 0"));
        }
        _ => {}
    }
    let refuse = |why: &str| Err(RefusalSubject::Machine.conflict(name(vm), why));
    if condition::is_true(vm, "VolumesChange") {
        return refuse(RECOVERY);
    }
    let strategy = strategy(vm)?;
    if matches!(strategy, RunStrategy::Halted | RunStrategy::Once) {
        // The missing letter is upstream's, and scripts search for the text.
        return refuse(&format!("RunStategy {strategy} does not support manual restart requests"));
    }
    let Some(vmi) = vmi else { return refuse("VM is not running: Halted") };
    let mut patches = Vec::new();
    if options.grace_period_seconds == Some(0) {
        // One second, the shortest time in which a guest is stopped and not killed.
        patches.push(set_grace(vmi, 1));
    }
    patches.extend(ask(vm, &[stop_request(Some(vmi)), start_request(false)])?);
    Ok(patches)
}

/// The migration object that moves a machine's guest elsewhere.
pub fn migrate(vm: &Value, vmi: &Value, options: &MigrateOptions) -> Result<Value, Refusal> {
    if InstancePhase::of(vmi) != InstancePhase::Running {
        return Err(RefusalSubject::Machine.conflict(name(vm), NOT_RUNNING));
    }
    let mut spec = json!({"vmiName": name(vm)});
    if !options.added_node_selector.is_empty() {
        spec["addedNodeSelector"] = json!(options.added_node_selector);
    }
    Ok(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": text(vm, "/metadata/namespace")},
        "spec": spec,
    }))
}

pub fn check_pause(vmi: &Value) -> Result<(), Refusal> {
    let probe = &vmi["spec"]["livenessProbe"];
    if InstancePhase::of(vmi) != InstancePhase::Running {
        Err(RefusalSubject::Instance.conflict(name(vmi), NOT_RUNNING))
    } else if probe.is_object() && !probe["guestAgentPing"].is_object() {
        let why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported";
        Err(RefusalSubject::Instance.forbidden(name(vmi), why))
    } else if condition::find(vmi, "Paused").is_some() {
        Err(RefusalSubject::Instance.conflict(name(vmi), "VMI is already paused"))
    } else {
        Ok(())
    }
}

/// `vm` is the machine of the instance, if it has one.
pub fn check_unpause(vm: Option<&Value>, vmi: &Value) -> Result<(), Refusal> {
    if let Some(vm) = vm
        && vm["status"]["snapshotInProgress"].is_string()
    {
        return Err(RefusalSubject::Machine.conflict(name(vm), "VM snapshot is in progress"));
    }
    if InstancePhase::of(vmi) != InstancePhase::Running {
        Err(RefusalSubject::Instance.conflict(name(vmi), INSTANCE_NOT_RUNNING))
    } else if condition::find(vmi, "Paused").is_none() {
        Err(RefusalSubject::Instance.conflict(name(vmi), "VMI is not paused"))
    } else {
        Ok(())
    }
}

pub fn check_freeze(vmi: &Value) -> Result<(), Refusal> {
    running(vmi, NOT_RUNNING)
}

pub fn check_unfreeze(vmi: &Value) -> Result<(), Refusal> {
    running(vmi, INSTANCE_NOT_RUNNING)
}

/// Upstream leaves the judgement to the node; a guest that does not run cannot be reset.
pub fn check_reset(vmi: &Value) -> Result<(), Refusal> {
    running(vmi, INSTANCE_NOT_RUNNING)
}

pub fn check_soft_reboot(vmi: &Value) -> Result<(), Refusal> {
    running(vmi, NOT_RUNNING)?;
    if condition::is_true(vmi, "Paused") {
        return Err(RefusalSubject::Instance.conflict(name(vmi), "VMI is paused"));
    }
    let acpi = &vmi["spec"]["domain"]["features"]["acpi"]["enabled"];
    if condition::find(vmi, "AgentConnected").is_none() && *acpi == false {
        let why = "VMI neither have the agent connected nor the ACPI feature enabled";
        return Err(RefusalSubject::Instance.conflict(name(vmi), why));
    }
    Ok(())
}

fn running(vmi: &Value, why: &str) -> Result<(), Refusal> {
    match InstancePhase::of(vmi) {
        InstancePhase::Running => Ok(()),
        _ => Err(RefusalSubject::Instance.conflict(name(vmi), why)),
    }
}

fn strategy(vm: &Value) -> Result<RunStrategy, Refusal> {
    let both = vm["spec"]["running"].is_boolean() && vm["spec"]["runStrategy"].is_string();
    if both {
        let why = "running and runStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead";
        return Err(Refusal::internal(why));
    }
    RunStrategy::of(vm).ok_or_else(|| {
        Refusal::internal(&format!("unknown runstrategy: {}", text(vm, "/spec/runStrategy")))
    })
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn start_request(paused: bool) -> Value {
    if paused {
        json!({"action": "Start", "data": {"paused": "true"}})
    } else {
        json!({"action": "Start"})
    }
}

fn stop_request(vmi: Option<&Value>) -> Value {
    let uid = vmi.map(|vmi| text(vmi, "/metadata/uid")).unwrap_or_default();
    json!({"action": "Stop", "uid": uid})
}

/// Leaves requests with the machine. A stop alone replaces what waits; anything else has to
/// wait for its turn, and there is no queue.
fn ask(vm: &Value, requests: &[Value]) -> Result<Vec<Patch>, Refusal> {
    let status = &vm["status"];
    let pending = &status["stateChangeRequests"];
    let mut operations = Vec::new();
    if status.as_object().is_none_or(serde_json::Map::is_empty) {
        operations.push(add("/status", &json!({"stateChangeRequests": requests})));
    } else {
        let waiting = pending.as_array().is_some_and(|pending| !pending.is_empty());
        let is_stop = matches!(requests, [only] if only["action"] == "Stop");
        if waiting && !is_stop {
            let why = "unable to complete request: stop/start already underway";
            return Err(Refusal::internal(why));
        }
        operations.push(test("/status/stateChangeRequests", pending));
        operations.push(add("/status/stateChangeRequests", &json!(requests)));
    }
    if status["startFailure"].is_object() {
        operations.push(json!({"op": "remove", "path": "/status/startFailure"}));
    }
    Ok(vec![Patch::new(PatchTarget::MachineStatus, operations)])
}

/// Switches a machine on or off, in the field that it uses.
fn set_running(vm: &Value, running: bool) -> Patch {
    let strategy = if running { RunStrategy::Always } else { RunStrategy::Halted };
    let (path, new) = match &vm["spec"]["runStrategy"] {
        Value::String(_) => ("/spec/runStrategy", json!(strategy.as_str())),
        _ => ("/spec/running", json!(running)),
    };
    let old = vm.pointer(path).unwrap_or(&Value::Null);
    Patch::new(PatchTarget::Machine, vec![test(path, old), add(path, &new)])
}

fn set_grace(vmi: &Value, seconds: i64) -> Patch {
    let path = "/spec/terminationGracePeriodSeconds";
    let old = vmi.pointer(path).unwrap_or(&Value::Null);
    let back = match old {
        Value::Null => json!({"op": "remove", "path": path}),
        old => add(path, old),
    };
    Patch {
        target: PatchTarget::Instance,
        operations: vec![test(path, old), add(path, &json!(seconds))],
        undo: vec![test(path, &json!(seconds)), back],
    }
}

fn test(path: &str, value: &Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

/// `add` replaces what is there, and does not mind if nothing is.
fn add(path: &str, value: &Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

#[cfg(test)]
mod tests;
