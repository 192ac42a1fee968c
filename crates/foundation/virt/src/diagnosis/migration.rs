//! Findings from migrations: one that waits, that is under way or failed last, and what keeps a
//! guest from being migrated.

use super::{Findings, Severity};
use crate::api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationState,
};
use crate::reason::NotMigratable;

pub(super) fn examine(findings: &mut Findings<'_>, instance: &VirtualMachineInstance) {
    let status = instance.status.clone().unwrap_or_default();
    let latest = latest(findings);
    let phase = latest.and_then(|own| own.status.as_ref()?.phase.as_deref()).unwrap_or("");
    match (latest, phase) {
        (Some(waiting), "" | "Pending") => examine_waiting(findings, waiting),
        (Some(failed), "Failed") if status.migration_state.is_none() => {
            examine_unplaced(findings, failed);
        }
        _ => {}
    }
    if let Some(state) = &status.migration_state {
        examine_state(findings, state);
    }
    let leaves = status.evacuation_node_name.as_deref().unwrap_or_default();
    let is_moving = status.migration_state.as_ref().is_some_and(is_under_way);
    let is_waiting = latest.is_some() && !["Succeeded", "Failed"].contains(&phase);
    if !leaves.is_empty() && !is_moving && !is_waiting {
        examine_evacuation(findings, leaves);
    }
    let refused = status
        .conditions
        .iter()
        .find(|own| own.r#type == "LiveMigratable" && own.status == "False");
    if let Some(refused) = refused {
        let reason = NotMigratable::parse(refused.reason.as_deref().unwrap_or(""));
        let message = refused.message.clone().unwrap_or_default();
        let strategy = instance.spec.eviction_strategy.as_deref();
        examine_obstacle(findings, reason, message, strategy == Some("LiveMigrate"));
    }
}

fn is_under_way(state: &VirtualMachineInstanceMigrationState) -> bool {
    state.completed != Some(true) && state.failed != Some(true)
}

/// A drain or an eviction asked for a migration that does not run.
fn examine_evacuation(findings: &mut Findings<'_>, node: &str) {
    let facts = findings.facts;
    findings.warning(
        format!("The guest has to leave node {node}, and no migration of it is under way."),
        "The node is drained, or the pod of the guest was evicted.",
        format!("virtctl evacuate-cancel vmi {}{}", facts.name, facts.place()),
    );
}

/// The latest migration of the machine.
fn latest<'a>(findings: &Findings<'a>) -> Option<&'a VirtualMachineInstanceMigration> {
    let facts = findings.facts;
    let own = |one: &&VirtualMachineInstanceMigration| {
        one.spec.vmi_name.as_deref() == Some(facts.name.as_str())
    };
    facts.migrations.iter().filter(own).max_by_key(|one| {
        one.metadata.creation_timestamp.as_ref().map(ToString::to_string).unwrap_or_default()
    })
}

fn examine_waiting(findings: &mut Findings<'_>, migration: &VirtualMachineInstanceMigration) {
    let facts = findings.facts;
    match event(findings, migration, "FailedScheduling") {
        Some(message) => findings.warning(
            "A migration of the guest finds no node to go to.",
            message,
            facts.sheaf("migrate") + " --cancel",
        ),
        None => findings.info(
            "A migration of the guest waits for its turn.",
            "The number of migrations at a time is limited per cluster and per node.",
            format!("kubectl get vmim{}", facts.place()),
        ),
    }
}

fn examine_unplaced(findings: &mut Findings<'_>, migration: &VirtualMachineInstanceMigration) {
    let facts = findings.facts;
    let message = event(findings, migration, "FailedMigration");
    findings.warning(
        "The last migration failed before it began; the guest stays where it is.",
        message.unwrap_or_else(|| "Its events say why, if they are not too old.".into()),
        facts.sheaf("migrate"),
    );
}

fn examine_state(findings: &mut Findings<'_>, state: &VirtualMachineInstanceMigrationState) {
    let facts = findings.facts;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (from, to) = (part(&state.source_node), part(&state.target_node));
    let is_aborted = state.abort_requested == Some(true);
    match (state.completed == Some(true), state.failed == Some(true)) {
        (true, _) => {}
        (_, true) if is_aborted => findings.info(
            format!("The last migration to node {to} was canceled; the guest stays on {from}."),
            part(&state.failure_reason),
            facts.sheaf("migrate"),
        ),
        (_, true) => findings.warning(
            format!("The last migration to node {to} failed; the guest stays on {from}."),
            part(&state.failure_reason),
            facts.sheaf("migrate"),
        ),
        (false, false) if is_aborted => findings.info(
            format!("The migration to node {to} is being canceled; the guest stays on {from}."),
            "The source was asked to stop it.",
            format!("kubectl get vmim{}", facts.place()),
        ),
        (false, false) => findings.info(
            format!("The guest is being migrated from node {from} to node {to}."),
            match &state.start_timestamp {
                Some(since) => format!("Its memory is being sent since {since}."),
                None => "The target node prepares for it.".to_owned(),
            },
            facts.sheaf("migrate") + " --cancel",
        ),
    }
}

/// Matters to a guest that has to be migrated when its node is drained.
fn examine_obstacle(
    findings: &mut Findings<'_>,
    reason: Option<NotMigratable>,
    message: String,
    is_required: bool,
) {
    let facts = findings.facts;
    let severity = if is_required { Severity::Warning } else { Severity::Info };
    let edit = facts.kubectl("edit", "vm", &facts.name);
    let (cause, fix) = match reason {
        Some(NotMigratable::Interface) => ("an interface keeps its address on the node", edit),
        Some(NotMigratable::HostDevice) => ("it uses a device of the node", edit),
        Some(NotMigratable::Hyperv) => ("it sees the Hyper-V features of the node", edit),
        Some(NotMigratable::Disks) => (
            "a disk of it is on the node only",
            facts.sheaf("move-disk") + " --class harvester-longhorn",
        ),
        Some(NotMigratable::Other) => ("a part of its state is on the node only", edit),
        None => ("its node says why", facts.kubectl("describe", "vmi", &facts.name)),
    };
    let effect = if is_required { ", and a drain of its node waits for it" } else { "" };
    findings.add(severity, format!("The guest cannot be migrated{effect}: {cause}."), message, fix);
}

/// The latest message with this reason about a migration.
fn event(
    findings: &Findings<'_>,
    migration: &VirtualMachineInstanceMigration,
    reason: &str,
) -> Option<String> {
    let about = |own: &&super::Event| {
        own.involved_object.kind.as_deref() == Some("VirtualMachineInstanceMigration")
            && own.involved_object.name == migration.metadata.name
            && own.reason.as_deref() == Some(reason)
    };
    let latest =
        findings.facts.events.iter().filter(about).max_by_key(|own| {
            own.last_timestamp.as_ref().map(ToString::to_string).unwrap_or_default()
        });
    latest.and_then(|own| own.message.clone())
}
