//! Findings from the machine itself: its run strategy, failed starts, and its own conditions.

use jiff::Timestamp;

use super::Findings;
use crate::api::v1::{
    VirtualMachine, VirtualMachineCondition, VirtualMachineMemoryDumpRequest,
    VirtualMachineStartFailure,
};
use crate::reason::MachineFailure;
use crate::state::RunStrategy;

pub(super) fn examine(
    findings: &mut Findings<'_>,
    machine: &VirtualMachine,
    has_instance: bool,
    now: Timestamp,
) {
    let facts = findings.facts;
    if machine.metadata.deletion_timestamp.is_some() {
        findings.info(
            "The machine is being deleted.",
            "Its guest is stopped and its volumes are removed first.",
            facts.kubectl("get", "vm", &facts.name) + " -o jsonpath='{.metadata.finalizers}'",
        );
    }
    let strategy = strategy(machine);
    let status = machine.status.clone().unwrap_or_default();
    if !has_instance && machine.metadata.deletion_timestamp.is_none() {
        examine_strategy(findings, strategy, status.printable_status.as_deref());
    }
    if let Some(failure) = &status.start_failure {
        examine_start_failure(findings, failure, strategy, now);
    }
    if let Some(dump) = status.memory_dump_request.as_ref().filter(|own| own.phase == "Failed") {
        examine_memory_dump(findings, dump);
    }
    for condition in status.conditions.iter().filter(|own| own.status == "True") {
        match condition.r#type.as_str() {
            "Failure" => examine_failure(findings, condition),
            "RestartRequired" => findings.warning(
                "A change of the machine takes effect when the guest is restarted.",
                condition.message.clone().unwrap_or_default(),
                facts.sheaf("restart"),
            ),
            "ManualRecoveryRequired" => findings.error(
                "The machine needs manual recovery.",
                condition.message.clone().unwrap_or_default(),
                facts.kubectl("describe", "vm", &facts.name),
            ),
            _ => {}
        }
    }
}

fn examine_memory_dump(findings: &mut Findings<'_>, dump: &VirtualMachineMemoryDumpRequest) {
    let facts = findings.facts;
    let claim = &dump.claim_name;
    findings.warning(
        format!("The memory of the guest could not be written to claim {claim}."),
        dump.message.clone().unwrap_or_default(),
        format!("virtctl memory-dump remove {}{}", facts.name, facts.place()),
    );
}

/// The run strategy of the machine; `None` for one that we do not know.
fn strategy(machine: &VirtualMachine) -> Option<RunStrategy> {
    match (&machine.spec.run_strategy, machine.spec.running) {
        (Some(text), _) => RunStrategy::parse(text),
        (None, Some(true)) => Some(RunStrategy::Always),
        (None, _) => Some(RunStrategy::Halted),
    }
}

fn examine_strategy(
    findings: &mut Findings<'_>,
    strategy: Option<RunStrategy>,
    state: Option<&str>,
) {
    let facts = findings.facts;
    match strategy {
        Some(RunStrategy::Halted) => findings.info(
            "The machine is stopped.",
            "Its run strategy is Halted.",
            facts.sheaf("start"),
        ),
        Some(RunStrategy::WaitAsReceiver) => findings.info(
            "The machine waits for a migration from another cluster.",
            "Its run strategy is WaitAsReceiver.",
            facts.kubectl("describe", "vm", &facts.name),
        ),
        Some(strategy) if state == Some("Stopped") && strategy != RunStrategy::Always => findings
            .info(
                "The machine is stopped and is not started automatically.",
                format!("Its run strategy is {strategy}."),
                facts.sheaf("start"),
            ),
        Some(_) => {}
        None => findings.error(
            "The run strategy of the machine is not valid.",
            "Valid are Always, RerunOnFailure, Manual, Halted and Once.",
            facts.kubectl("edit", "vm", &facts.name),
        ),
    }
}

fn examine_start_failure(
    findings: &mut Findings<'_>,
    failure: &VirtualMachineStartFailure,
    strategy: Option<RunStrategy>,
    now: Timestamp,
) {
    let count = failure.consecutive_fail_count.unwrap_or(0);
    if count <= 0 {
        return;
    }
    let restarts = matches!(strategy, Some(RunStrategy::Always | RunStrategy::RerunOnFailure));
    let due = failure.retry_after_timestamp.as_ref().map(ToString::to_string);
    let due = due.filter(|_| restarts);
    let why = match due.and_then(|text| Some((text.parse::<Timestamp>().ok()?, text))) {
        Some((time, text)) if time > now => format!("The next attempt is at {text}."),
        Some(_) => "The next attempt is due now.".to_owned(),
        None => match strategy {
            Some(strategy) => format!(
                "No further attempt is scheduled: the run strategy of the machine is {strategy}."
            ),
            None => "No further attempt is scheduled.".to_owned(),
        },
    };
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times in a row") };
    let facts = findings.facts;
    findings.error(format!("The guest failed to start {times}."), why, facts.sheaf("logs"));
}

fn examine_failure(findings: &mut Findings<'_>, condition: &VirtualMachineCondition) {
    let facts = findings.facts;
    let message = condition.message.clone().unwrap_or_default();
    let edit = facts.kubectl("edit", "vm", &facts.name);
    let reason = condition.reason.as_deref().unwrap_or_default();
    match MachineFailure::parse(reason) {
        Some(MachineFailure::Create) => {
            findings.error("The instance or a volume of the machine is refused.", message, edit);
        }
        Some(MachineFailure::Delete) => findings.error(
            "The instance of the machine cannot be deleted.",
            message,
            facts.kubectl("describe", "vmi", &facts.name),
        ),
        Some(MachineFailure::Update) => findings.error(
            "A change of the machine cannot be applied to the running guest.",
            message,
            edit,
        ),
        Some(MachineFailure::Instancetype) => findings.error(
            "The instancetype of the machine does not exist.",
            message,
            "kubectl get virtualmachineclusterinstancetypes,virtualmachineinstancetypes -A",
        ),
        Some(MachineFailure::Preference) => findings.error(
            "The preference of the machine does not exist.",
            message,
            "kubectl get virtualmachineclusterpreferences,virtualmachinepreferences -A",
        ),
        None => findings.error(
            format!("The controller reports a failure: {reason}."),
            message,
            facts.kubectl("describe", "vm", &facts.name),
        ),
    }
}
