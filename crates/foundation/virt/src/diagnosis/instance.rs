//! Findings from the instance: why it is not synchronized, not ready, paused or over.

use super::event::last_seen;
use super::{Event, Findings, Severity, placement};
use crate::api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceCondition, VirtualMachineInstanceStatus,
};
use crate::reason::{
    InstanceFailure, NotReady, NotRestarted, NotSynchronized, Pause, VolumesChange,
};

pub(super) fn examine(findings: &mut Findings<'_>, instance: &VirtualMachineInstance) {
    let facts = findings.facts;
    let status = instance.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let is_over = ["Succeeded", "Failed"].contains(&phase);
    if is_over {
        examine_end(findings, &status);
    }
    if instance.metadata.deletion_timestamp.is_some() && phase == "Running" {
        findings.info(
            "The guest is shutting down.",
            "It is killed when its grace period has passed.",
            facts.sheaf("stop") + " --force",
        );
    }
    // Last whether it is ready: the other conditions name the cause if it is not.
    let is_ready = |condition: &&VirtualMachineInstanceCondition| condition.r#type == "Ready";
    let others = status.conditions.iter().filter(|condition| !is_ready(condition));
    for condition in others.chain(status.conditions.iter().filter(is_ready)) {
        match (condition.r#type.as_str(), condition.status.as_str()) {
            ("PodScheduled", "False") => placement::examine(findings, instance, condition),
            ("Synchronized", "False") => examine_synchronization(findings, condition),
            ("Paused", "True") => examine_pause(findings, condition),
            ("VolumesChange", "True") => examine_volumes_change(findings, condition),
            ("RestartElsewhere", "False") => examine_restart(findings, condition, &status),
            ("Ready", "False") if !is_over => examine_readiness(findings, condition, &status),
            ("AgentVersionNotSupported", "True") => findings.warning(
                "The guest agent is too old.",
                condition.reason.clone().unwrap_or_default(),
                facts.sheaf("console"),
            ),
            ("AccessCredentialsSynchronized", "False") => findings.warning(
                "SSH keys or passwords could not be written into the guest.",
                condition.message.clone().unwrap_or_default(),
                facts.sheaf("console"),
            ),
            _ => {}
        }
    }
    if status.fs_freeze_status.as_deref() == Some("frozen") {
        examine_freeze(findings);
    }
    if phase == "Running" && !facts.policies.is_empty() {
        findings.info(
            "Network policies restrict its connections: what they do not allow is dropped.",
            facts.policies.join(", "),
            format!("sheaf network trace {}{} --to HOST:PORT", facts.name, facts.place()),
        );
    }
    examine_user_data(findings, instance);
    examine_hotplug(findings, &status);
}

/// File systems of a guest are frozen while a snapshot is taken, and not longer.
fn examine_freeze(findings: &mut Findings<'_>) {
    let facts = findings.facts;
    let machine = facts.machine.as_ref().and_then(|machine| machine.status.as_ref());
    let snapshot = machine.and_then(|status| status.snapshot_in_progress.as_deref());
    match snapshot.filter(|snapshot| !snapshot.is_empty()) {
        Some(snapshot) => findings.info(
            "The file systems of the guest are frozen while a snapshot is taken.",
            format!("Snapshot {snapshot} is in progress."),
            facts.kubectl("describe", "vmsnapshot", snapshot),
        ),
        None => findings.warning(
            "The file systems of the guest are frozen: its programs cannot write.",
            "A client froze them, and no snapshot is in progress.",
            format!(
                "kubectl replace --raw /apis/subresources.kubevirt.io/v1/namespaces/{}/\
                 virtualmachineinstances/{}/unfreeze -f /dev/null",
                facts.namespace, facts.name
            ),
        ),
    }
}

/// The node reports user data that the guest ignores in an event only.
fn examine_user_data(findings: &mut Findings<'_>, instance: &VirtualMachineInstance) {
    let facts = findings.facts;
    let created = instance.metadata.creation_timestamp.as_ref();
    let created = created.map(ToString::to_string).unwrap_or_default();
    let about = |own: &&Event| {
        own.involved_object.kind.as_deref() == Some("VirtualMachineInstance")
            && own.involved_object.name.as_deref() == Some(facts.name.as_str())
            && own.reason.as_deref() == Some("InvalidUserData")
            && last_seen(own) >= created
    };
    if let Some(event) = facts.events.iter().filter(about).max_by_key(|own| last_seen(own)) {
        findings.warning(
            "The guest ignores its user data (cloud-init).",
            event.message.clone().unwrap_or_default(),
            facts.kubectl("edit", "vm", &facts.name),
        );
    }
}

/// Volumes that move to other claims.
fn examine_volumes_change(
    findings: &mut Findings<'_>,
    condition: &VirtualMachineInstanceCondition,
) {
    let facts = findings.facts;
    let message = condition.message.clone().unwrap_or_default();
    let command =
        facts.kubectl("get", "vmi", &facts.name) + " -o jsonpath='{.status.migratedVolumes}'";
    match VolumesChange::parse(condition.reason.as_deref().unwrap_or_default()) {
        Some(VolumesChange::Failed) => findings.warning(
            "A disk could not be copied to another claim, and is tried again.",
            message,
            facts.kubectl("edit", "vm", &facts.name),
        ),
        Some(VolumesChange::Switching) => {
            findings.info("The guest is switched to another claim.", message, command);
        }
        Some(VolumesChange::Copying | VolumesChange::Canceled) | None => {
            findings.info("Disks of the guest are copied to other claims.", message, command);
        }
    }
}

fn examine_end(findings: &mut Findings<'_>, status: &VirtualMachineInstanceStatus) {
    let facts = findings.facts;
    let is_failed = status.phase.as_deref() == Some("Failed");
    let node = status.node_name.clone().unwrap_or_default();
    match InstanceFailure::parse(status.reason.as_deref().unwrap_or_default()) {
        Some(InstanceFailure::DataVolume) => findings.error(
            "The instance was given up because a volume could not be filled.",
            "The volume is named in another finding or in the events.",
            facts.kubectl("get", "dv", "").trim_end().to_owned(),
        ),
        Some(InstanceFailure::NodeLost) => findings.error(
            format!("The node {node} of the guest was lost, and the guest with it."),
            "The node was declared lost, removed, or marked as out of service.",
            facts.sheaf("start"),
        ),
        None if is_failed => findings.error(
            "The guest ended with a failure.",
            "QEMU ended unexpectedly, or the guest was killed.",
            facts.sheaf("logs"),
        ),
        None => {}
    }
}

/// A reason of `Synchronized=False` in plain words: severity, observation, and a command.
fn synchronization(
    reason: NotSynchronized,
    findings: &Findings<'_>,
) -> (Severity, &'static str, String) {
    let facts = findings.facts;
    let edit = facts.kubectl("edit", "vm", &facts.name);
    let claims = format!("kubectl get pvc,dv{}", facts.place());
    let node = "kubectl describe nodes".to_owned();
    match reason {
        NotSynchronized::PvcNotFound => {
            (Severity::Error, "A claim of the machine does not exist.", claims)
        }
        NotSynchronized::Mount => (Severity::Error, "A volume cannot be read by the node.", edit),
        NotSynchronized::VolumeNotReady => (Severity::Info, "A volume is not ready yet.", claims),
        NotSynchronized::Attaching => {
            (Severity::Info, "A volume is being attached to the node.", claims)
        }
        NotSynchronized::Attach => (
            Severity::Error,
            "A volume cannot be attached to the node.",
            "kubectl get volumes.longhorn.io -n longhorn-system".to_owned(),
        ),
        NotSynchronized::Pulling => (
            Severity::Info,
            "The image of a container disk is being pulled.",
            facts.kubectl("describe", "vmi", &facts.name),
        ),
        NotSynchronized::ImagePull | NotSynchronized::ImagePullBackOff => {
            (Severity::Error, "The image of a container disk cannot be pulled.", edit)
        }
        NotSynchronized::ImageNeverPull => (
            Severity::Error,
            "The image of a container disk is not on the node, and its pull \
              policy is Never.",
            edit,
        ),
        NotSynchronized::InvalidImage => {
            (Severity::Error, "The image of a volume is not a disk that QEMU can read.", edit)
        }
        NotSynchronized::Network => {
            (Severity::Error, "A network interface cannot be connected.", edit)
        }
        NotSynchronized::Node => (Severity::Error, "The node cannot run guests.", node),
        NotSynchronized::Processors => {
            (Severity::Error, "The node has too few free dedicated processors.", node)
        }
        NotSynchronized::StartOrder => (
            Severity::Info,
            "Another machine starts first (annotation sheaf.io/start-order).",
            format!("sheaf vm list{}", facts.place()),
        ),
        NotSynchronized::Domain => (Severity::Error, "QEMU refuses the machine.", edit),
        NotSynchronized::Create => (
            Severity::Error,
            "The pod that represents the guest is refused.",
            format!("kubectl get resourcequota,limitrange{}", facts.place()),
        ),
        NotSynchronized::Liveness => (
            Severity::Error,
            "The guest was stopped because its liveness probe failed.",
            facts.sheaf("logs"),
        ),
        NotSynchronized::Hotplug => {
            (Severity::Error, "A change cannot be applied to the running guest.", edit)
        }
    }
}

fn examine_synchronization(
    findings: &mut Findings<'_>,
    condition: &VirtualMachineInstanceCondition,
) {
    let message = condition.message.clone().unwrap_or_default();
    let reason = condition.reason.as_deref().unwrap_or_default();
    let (severity, what, fix) = match NotSynchronized::parse(reason) {
        // Reported with the name of the claim by `storage`.
        Some(NotSynchronized::PvcNotFound) if findings.names_missing_claim() => return,
        Some(known) => {
            let (severity, what, fix) = synchronization(known, findings);
            (severity, what.to_owned(), fix)
        }
        None => {
            let facts = findings.facts;
            let what = format!("The instance cannot be brought to its specification: {reason}.");
            (Severity::Error, what, facts.kubectl("describe", "vmi", &facts.name))
        }
    };
    findings.add(severity, what, message, fix);
}

fn examine_pause(findings: &mut Findings<'_>, condition: &VirtualMachineInstanceCondition) {
    let facts = findings.facts;
    let reason = condition.reason.as_deref().unwrap_or_default();
    match Pause::parse(reason) {
        Some(Pause::IoError) => findings.error(
            "The guest is paused because a disk failed a request.",
            "The file system below the disk is full, or the storage failed. A guest on a full \
             file system is resumed when there is space again.",
            "df -h /var/lib/sheaf; ".to_owned() + &facts.sheaf("unpause"),
        ),
        Some(Pause::User) | None => findings.warning(
            "The guest is paused.",
            condition.message.clone().unwrap_or_default(),
            facts.sheaf("unpause"),
        ),
    }
}

/// The node of the guest is lost, and the guest is not started on another.
fn examine_restart(
    findings: &mut Findings<'_>,
    condition: &VirtualMachineInstanceCondition,
    status: &VirtualMachineInstanceStatus,
) {
    let facts = findings.facts;
    let node = status.node_name.clone().unwrap_or_default();
    let reason = NotRestarted::parse(condition.reason.as_deref().unwrap_or_default());
    let force = format!("kubectl taint node {node} node.kubernetes.io/out-of-service=:NoExecute");
    let (what, fix) = match reason {
        Some(NotRestarted::Disabled) => ("its restart elsewhere is switched off", force),
        Some(NotRestarted::NoReplicatedDisk) => {
            ("no replicated disk would keep a second guest from running", force)
        }
        Some(NotRestarted::LocalDisk) => ("a disk of it exists on that node only", force),
        Some(NotRestarted::LocalState) => {
            ("its firmware or TPM state exists on that node only", force)
        }
        Some(NotRestarted::LastCopy) => (
            "the only up-to-date copy of a disk is on that node",
            "sheaf volume salvage --help".to_owned(),
        ),
        None => ("the cause is not known", facts.kubectl("describe", "vmi", &facts.name)),
    };
    findings.error(
        format!("The node {node} is lost, and the guest is not started elsewhere: {what}."),
        condition.message.clone().unwrap_or_default(),
        fix,
    );
}

fn examine_readiness(
    findings: &mut Findings<'_>,
    condition: &VirtualMachineInstanceCondition,
    status: &VirtualMachineInstanceStatus,
) {
    let facts = findings.facts;
    let message = condition.message.clone().unwrap_or_default();
    let node = status.node_name.clone().unwrap_or_default();
    let reason = condition.reason.as_deref().unwrap_or_default();
    match NotReady::parse(reason) {
        Some(NotReady::Probe) => findings.error(
            "The guest runs, but its readiness probe fails.",
            message,
            facts.sheaf("console"),
        ),
        Some(NotReady::NotResponding) => findings.error(
            "QEMU does not respond; the guest may be stopped.",
            format!(
                "{message}. The QEMU process is stopped by a signal, or it waits for storage \
                 that does not answer."
            ),
            facts.sheaf("stop") + " --force && " + &facts.sheaf("start"),
        ),
        Some(NotReady::NodeSilent) => findings.error(
            format!("The node {node} does not report; the guest may still run there."),
            message,
            format!("kubectl describe node {node}"),
        ),
        // Its own condition says so.
        Some(NotReady::Paused) => {}
        // The other conditions of the instance and its volumes name the cause.
        Some(
            NotReady::NotScheduled
            | NotReady::NotRunning
            | NotReady::Terminating
            | NotReady::NoInstance
            | NotReady::NoCondition,
        ) => {
            if findings.found.is_empty() && status.phase.as_deref() != Some("Running") {
                findings.info(
                    "The guest is starting.",
                    message,
                    facts.kubectl("describe", "vmi", &facts.name),
                );
            } else if status.phase.as_deref() == Some("Running") {
                findings.error(
                    "The guest is not reported as running.",
                    message,
                    facts.sheaf("logs"),
                );
            }
        }
        None => findings.error(
            format!("The guest is not ready: {reason}."),
            message,
            facts.kubectl("describe", "vmi", &facts.name),
        ),
    }
}

fn examine_hotplug(findings: &mut Findings<'_>, status: &VirtualMachineInstanceStatus) {
    let facts = findings.facts;
    for volume in status.volume_status.iter().filter(|own| own.hotplug_volume.is_some()) {
        let message = volume.message.clone().unwrap_or_default();
        let name = &volume.name;
        match volume.phase.as_deref() {
            Some("Pending") => findings.warning(
                format!("The volume {name} is not plugged into the guest yet."),
                message,
                facts.kubectl("describe", "vmi", &facts.name),
            ),
            Some("Detaching") => findings.info(
                format!("The guest has not released the volume {name} yet."),
                message,
                facts.sheaf("console"),
            ),
            _ => {}
        }
    }
}

impl Findings<'_> {
    /// Whether a claim that does not exist has been named.
    fn names_missing_claim(&self) -> bool {
        self.found.iter().any(|finding| finding.what.ends_with("does not exist."))
    }
}
