//! The next step of a virtual machine and of the instance of its name, and the patches that adopt,
//! protect and release them. Pure: the reconciler reads the objects and writes what is returned.
//!
//! The step that a run strategy asks for is decided in `virt::run_strategy`; here it is brought
//! together with the instance that exists and the requests that are recorded.

use jiff::Timestamp;
use serde_json::{Value, json};
use virt::printable_status::has_failed;
use virt::run_strategy::{RunAction, RunSituation, decide};
use virt::{InstancePhase, RunStrategy};

use super::instance;
use super::record::{StartedInstance, VmFields};
use crate::object::{self, is_deleting, list, read};
use crate::vmi::VM_FINALIZER;

/// The finalizer with which a client asks that dependents stay.
const ORPHAN: &str = "orphan";
/// Data volumes are made before the first start unless its value is `false`.
const EARLY_VOLUMES: &str = "kubevirt.io/immediate-data-volume-creation";
/// The printable status of a machine whose disk could not be imported.
const IMPORT_FAILED: &str = "DataVolumeError";

/// The relation of a machine to the instance of its name.
#[derive(Debug, PartialEq)]
pub(super) enum Ownership {
    Own,
    /// No object controls the instance; the patch makes the machine its controller.
    Adopt {
        patch: Value,
    },
    Foreign,
}

pub(super) fn ownership(vm: &Value, vmi: &Value) -> Ownership {
    if object::is_controlled_by(vmi, vm) {
        return Ownership::Own;
    }
    let is_controlled = object::controller(vmi).is_some();
    if is_controlled || is_deleting(vmi) || is_deleting(vm) || is_over(vmi) {
        return Ownership::Foreign;
    }
    let mut meta = object::version(vmi);
    let mut owners = list(vmi, "/metadata/ownerReferences").to_vec();
    owners.push(instance::owned_by(vm));
    meta.insert("ownerReferences".into(), json!(owners));
    let mut finalizers = object::finalizers_without(vmi, &[VM_FINALIZER]);
    finalizers.push(json!(VM_FINALIZER));
    meta.insert("finalizers".into(), json!(finalizers));
    Ownership::Adopt { patch: json!({"metadata": meta}) }
}

/// The patch that keeps a machine until its instance is gone; nothing if it has the finalizer.
pub(super) fn protection(vm: &Value) -> Option<Value> {
    if object::has_finalizer(vm, VM_FINALIZER) {
        return None;
    }
    let mut meta = object::version(vm);
    let mut finalizers = list(vm, "/metadata/finalizers").to_vec();
    finalizers.push(json!(VM_FINALIZER));
    meta.insert("finalizers".into(), json!(finalizers));
    Some(json!({"metadata": meta}))
}

/// The patch that removes our finalizer from a machine or an instance; nothing if it has none.
pub(super) fn release(kept: &Value) -> Option<Value> {
    if !object::has_finalizer(kept, VM_FINALIZER) {
        return None;
    }
    let mut meta = object::version(kept);
    let finalizers = object::finalizers_without(kept, &[VM_FINALIZER]);
    meta.insert("finalizers".into(), json!(finalizers));
    Some(json!({"metadata": meta}))
}

/// Whether the instance of a machine that is being deleted is ended before it.
pub(super) fn ends_instance(vm: &Value) -> bool {
    !object::has_finalizer(vm, ORPHAN)
}

/// Whether data volumes are made before the machine is started.
pub(super) fn makes_volumes_early(vm: &Value) -> bool {
    object::annotation(vm, EARLY_VOLUMES) != Some("false")
}

/// The next step of a machine that is not being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VmStep {
    Nothing,
    /// Bring changes of the template to the instance.
    Update,
    Start {
        paused: bool,
    },
    Stop,
    /// Record a request to start. The instance, which has failed, is stopped after that: no crash
    /// in between leaves a machine that is never started.
    RequestStart,
    Wait {
        seconds: i64,
    },
    SetStrategy(RunStrategy),
    Refuse {
        message: String,
    },
}

pub(super) fn next_step(vm: &Value, vmi: Option<&Value>, now: Timestamp) -> VmStep {
    let Some(situation) = RunSituation::of(vm, vmi, now) else {
        let strategy = read::<VmFields<'_>>(vm).spec.run_strategy;
        return VmStep::Refuse { message: format!("unknown runstrategy: {strategy}") };
    };
    match decide(situation) {
        RunAction::Start { paused } => VmStep::Start { paused },
        RunAction::Wait { seconds } => VmStep::Wait { seconds },
        RunAction::Become(strategy) => VmStep::SetStrategy(strategy),
        RunAction::Stray => {
            VmStep::Refuse { message: "VMI exists and is not a receiver VMI".to_owned() }
        }
        _ if vmi.is_none() => VmStep::Nothing,
        RunAction::Nothing | RunAction::BecomeWhatItWas => VmStep::Update,
        RunAction::StopAndAskForStart if !is_start_requested(vm) => VmStep::RequestStart,
        RunAction::Stop | RunAction::StopAndAskForStart => VmStep::Stop,
    }
}

fn is_start_requested(vm: &Value) -> bool {
    let requests = read::<VmFields<'_>>(vm).status.state_change_requests;
    requests.iter().any(|request| request.action == "Start")
}

/// The patch that records whether the machine is meant to run, in the field that it uses.
pub(super) fn strategy_patch(vm: &Value, strategy: RunStrategy) -> Value {
    let spec = match read::<VmFields<'_>>(vm).spec.running {
        Some(_) => json!({"running": strategy == RunStrategy::Always}),
        None => json!({"runStrategy": strategy.as_str()}),
    };
    json!({"metadata": object::version(vm), "spec": spec})
}

/// The record of an earlier generation from which an instance was started that has ended.
pub(super) fn outdated_revision<'a>(vm: &Value, vmi: &'a Value) -> Option<&'a str> {
    let revision = read::<StartedInstance<'_>>(vmi).status.virtual_machine_revision_name;
    (!revision.is_empty() && revision != instance::revision_name(vm)).then_some(revision)
}

/// The data volumes whose import has failed, when that is new in the status to be written.
pub(super) fn failed_imports<'a>(
    vm: &Value,
    patch: &Value,
    data_volumes: &'a [Value],
) -> Vec<&'a str> {
    let printable = |object| read::<VmFields<'_>>(object).status.printable_status;
    if printable(patch) != IMPORT_FAILED || printable(vm) == IMPORT_FAILED {
        return Vec::new();
    }
    data_volumes.iter().filter(|own| has_failed(own)).map(object::name).collect()
}

pub(super) fn is_over(vmi: &Value) -> bool {
    InstancePhase::of(vmi).is_final()
}

#[cfg(test)]
mod tests;
