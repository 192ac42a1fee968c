//! The desired status of a VMI, and the patch from the current one. Pure.
//!
//! The agent owns the status from the hand-over on. Only fields that differ are written, and
//! conditions keep their time of transition, so that a machine at rest causes no writes.

mod condition;
mod memory_dump;
mod migratable;
mod volume_move;

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::reason::{NotReady, NotSynchronized, Pause as PauseReason};
use virt::v1::{VirtualMachineInstanceGuestOSInfo, VirtualMachineInstanceNetworkInterface};

use crate::machine::{AgentState, CredentialsState, Readiness, Topology, Vmi, VmiPhase};
use condition::Conditions;
pub(crate) use memory_dump::{DumpReport, Ended};
use memory_dump::{dump_info, dump_phase, has_dumped};
pub(crate) use volume_move::{VolumeMove, VolumeMoveState};

/// All that status is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) phase: VmiPhase,
    /// Why the machine is not as its specification says.
    pub(crate) trouble: Option<MachineProblem>,
    /// Facts about the guest; absent before it runs and after it ended.
    pub(crate) guest: Option<Guest>,
}

/// A reason in one word, and a message that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineProblem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl MachineProblem {
    pub(crate) fn new(reason: NotSynchronized, message: impl Into<String>) -> Self {
        Self { reason: reason.as_str(), message: message.into() }
    }
}

/// A running guest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Guest {
    pub(crate) pause: Option<Pause>,
    pub(crate) readiness: Readiness,
    pub(crate) agent: AgentState,
    pub(crate) os: VirtualMachineInstanceGuestOSInfo,
    pub(crate) frozen: bool,
    pub(crate) credentials: CredentialsState,
    pub(crate) machine_type: String,
    pub(crate) topology: Topology,
    pub(crate) memory: GuestMemory,
    pub(crate) user: u32,
    pub(crate) volumes: Vec<VolumeReport>,
    /// Volumes that move to other claims, or just did.
    pub(crate) moves: Vec<VolumeMove>,
    /// Disks on local volumes, whose data a migration copies.
    pub(crate) movable: Vec<String>,
    pub(crate) interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    User,
    IoError,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestMemory {
    pub(crate) at_boot: u64,
    pub(crate) current: u64,
    pub(crate) requested: u64,
    pub(crate) overhead: u64,
}

/// A volume of the guest, attached or on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VolumeReport {
    pub(crate) name: String,
    /// The guest's name for it, `vda`; empty while it is not attached.
    pub(crate) target: String,
    pub(crate) size: Option<u64>,
    pub(crate) hotplug: Option<Hotplug>,
    /// As in `persistentVolumeClaimInfo`.
    pub(crate) claim: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hotplug {
    Attached,
    /// Not yet: why.
    Pending(String),
    /// No longer wanted, and the guest has not released it.
    Detaching,
    /// The memory of the guest is dumped to it, or was.
    Dump(DumpReport),
    /// The same, but this process has not started it: why not. It may have ended earlier.
    AwaitsDump(String),
}

/// The merge patch that brings the stored status to `view`; nothing if it is there already.
pub(crate) fn patch(vmi: &Vmi, view: &View, now: Timestamp) -> Option<Value> {
    let mut patch = Patch { have: &vmi.status, changed: Map::new() };
    let stamp = rfc3339(now);
    if vmi.status["phase"] != view.phase.name() {
        patch.put("phase", view.phase.name().into());
        patch.put("phaseTransitionTimestamps", transitions(vmi, view.phase, &stamp));
    }
    let mut conditions = Conditions::new(&vmi.status["conditions"], stamp);
    set_conditions(&mut conditions, vmi, view);
    patch.put("conditions", conditions.finish());
    if let Some(guest) = &view.guest {
        guest_fields(&mut patch, vmi, guest);
    }
    (!patch.changed.is_empty()).then(|| {
        json!({
            "metadata": {"resourceVersion": vmi.version},
            "status": patch.changed,
        })
    })
}

struct Patch<'a> {
    have: &'a Value,
    changed: Map<String, Value>,
}

impl Patch<'_> {
    /// `null` removes.
    fn put(&mut self, field: &str, want: Value) {
        if self.have.get(field).unwrap_or(&Value::Null) == &want {
            return;
        }
        let mut want = want;
        // Fields of an object that are no longer wanted would survive a merge.
        if let (Some(Value::Object(have)), Value::Object(want)) = (self.have.get(field), &mut want)
        {
            for key in
                have.keys().filter(|key| !want.contains_key(*key)).cloned().collect::<Vec<_>>()
            {
                want.insert(key, Value::Null);
            }
        }
        self.changed.insert(field.into(), want);
    }
}

fn transitions(vmi: &Vmi, phase: VmiPhase, stamp: &str) -> Value {
    let mut all = vmi.status["phaseTransitionTimestamps"].as_array().cloned().unwrap_or_default();
    if !all.iter().any(|each| each["phase"] == phase.name()) {
        all.push(json!({"phase": phase.name(), "phaseTransitionTimestamp": stamp}));
    }
    all.into()
}

/// As the pod of a paused guest reports: services must not lead to it.
const UNPAUSED_GATE: (&str, &str) = (
    NotReady::Paused.as_str(),
    "the status of pod readiness gate \"kubevirt.io/virtual-machine-unpaused\" is not \"True\", but False",
);

fn set_conditions(conditions: &mut Conditions, vmi: &Vmi, view: &View) {
    let not_running = (NotReady::NotRunning.as_str(), "Guest VM is not reported as running");
    let readiness = view.guest.as_ref().map(|guest| &guest.readiness);
    let paused = view.guest.as_ref().is_some_and(|guest| guest.pause.is_some());
    match readiness {
        Some(Readiness::Ready) if paused => {
            conditions.no("Ready", UNPAUSED_GATE.0, UNPAUSED_GATE.1);
        }
        Some(Readiness::Ready) => conditions.yes("Ready"),
        Some(Readiness::Unready(why)) => conditions.no("Ready", NotReady::Probe.as_str(), why),
        Some(Readiness::Silent) => {
            let reason = NotReady::NotResponding.as_str();
            conditions.no("Ready", reason, "QEMU does not answer its monitor");
        }
        None => conditions.no("Ready", not_running.0, not_running.1),
    }
    match &view.trouble {
        Some(trouble) => conditions.no("Synchronized", trouble.reason, &trouble.message),
        None => conditions.remove("Synchronized"),
    }
    let Some(guest) = &view.guest else {
        for gone in ["AgentConnected", "AgentVersionNotSupported", "Paused"] {
            conditions.remove(gone);
        }
        return;
    };
    // The conditions of the placement are over.
    for over in ["Provisioning", "PodScheduled"] {
        conditions.remove(over);
    }
    match migratable::obstacle(vmi, guest) {
        Some(trouble) => conditions.no("LiveMigratable", trouble.reason, &trouble.message),
        None => conditions.yes("LiveMigratable"),
    }
    // Disks are mirrored on the node that the guest is on: nothing of the guest is in the way.
    conditions.yes("StorageLiveMigratable");
    volume_move::set_condition(conditions, &guest.moves);
    agent_conditions(conditions, guest);
    match guest.pause {
        Some(Pause::User) => {
            conditions.because("Paused", PauseReason::User.as_str(), "VMI was paused by user");
        }
        Some(Pause::IoError) => {
            let message = "VMI was paused, low-level IO error detected";
            conditions.because("Paused", PauseReason::IoError.as_str(), message);
        }
        None => conditions.remove("Paused"),
    }
}

fn agent_conditions(conditions: &mut Conditions, guest: &Guest) {
    match &guest.agent {
        AgentState::Absent => {
            conditions.remove("AgentConnected");
            conditions.remove("AgentVersionNotSupported");
        }
        AgentState::Connected => {
            conditions.probed("AgentConnected");
            conditions.remove("AgentVersionNotSupported");
        }
        AgentState::Unsupported(why) => {
            conditions.probed("AgentConnected");
            conditions.because("AgentVersionNotSupported", why, "");
        }
    }
    match &guest.credentials {
        CredentialsState::Synchronized => conditions.yes("AccessCredentialsSynchronized"),
        CredentialsState::Failed { why } => conditions.no("AccessCredentialsSynchronized", "", why),
        CredentialsState::Unused => conditions.remove("AccessCredentialsSynchronized"),
    }
}

fn guest_fields(patch: &mut Patch<'_>, vmi: &Vmi, guest: &Guest) {
    let text = |bytes: u64| Value::from(quantity(bytes));
    let json = |value: Result<Value, serde_json::Error>| value.expect("status is JSON");
    patch.put("interfaces", json(serde_json::to_value(&guest.interfaces)));
    patch.put("guestOSInfo", json(serde_json::to_value(&guest.os)));
    patch.put("machine", json!({"type": guest.machine_type}));
    patch.put("runtimeUser", guest.user.into());
    let topology = &guest.topology;
    patch.put(
        "currentCPUTopology",
        json!({
            "sockets": topology.sockets, "cores": topology.cores, "threads": topology.threads,
        }),
    );
    let memory = &guest.memory;
    patch.put(
        "memory",
        json!({
            "guestAtBoot": text(memory.at_boot),
            "guestCurrent": text(memory.current),
            "guestRequested": text(memory.requested),
            "memoryOverhead": text(memory.overhead),
        }),
    );
    if let Some(rest) = volume_move::unfinished(&vmi.status, &guest.moves) {
        patch.put("migratedVolumes", rest);
    }
    patch.put("qosClass", qos_class(vmi).into());
    let method = if migratable::is_shared(vmi, guest) { "LiveMigration" } else { "BlockMigration" };
    patch.put("migrationMethod", method.into());
    patch.put("migrationTransport", "Unix".into());
    patch.put("fsFreezeStatus", if guest.frozen { "frozen".into() } else { Value::Null });
    let mut volumes: Vec<&VolumeReport> = guest.volumes.iter().collect();
    volumes.sort_by(|one, two| one.name.cmp(&two.name));
    let have = vmi.status["volumeStatus"].as_array().cloned().unwrap_or_default();
    let volumes: Vec<Value> =
        volumes.into_iter().map(|volume| volume_status(volume, &have)).collect();
    patch.put("volumeStatus", if volumes.is_empty() { Value::Null } else { volumes.into() });
}

fn volume_status(volume: &VolumeReport, have: &[Value]) -> Value {
    let before = have.iter().find(|each| each["name"] == volume.name.as_str());
    let mut status = json!({"name": volume.name, "target": volume.target});
    if let Some(size) = volume.size {
        status["size"] = size.into();
    }
    if let Some(claim) = &volume.claim {
        status["persistentVolumeClaimInfo"] = claim.clone();
    }
    // Fields of other writers stay.
    for kept in ["memoryDumpVolume", "containerDiskVolume"] {
        if let Some(value) = before.and_then(|before| before.get(kept)) {
            status[kept] = value.clone();
        }
    }
    let Some(hotplug) = &volume.hotplug else { return status };
    let name = &volume.name;
    let attachment = before.and_then(|before| before.get("hotplugVolume")).cloned();
    status["hotplugVolume"] = attachment.unwrap_or_else(|| json!({}));
    let (phase, reason, message) = match hotplug {
        Hotplug::AwaitsDump(_) if before.is_some_and(has_dumped) => {
            return before.cloned().unwrap_or(status);
        }
        Hotplug::Dump(report) => {
            status["memoryDumpVolume"] = dump_info(report);
            dump_phase(name, report)
        }
        Hotplug::Attached => {
            ("Ready", "VolumeReady", format!("Successfully attach hotplugged volume {name} to VM"))
        }
        Hotplug::Pending(why) | Hotplug::AwaitsDump(why) => {
            ("Pending", "VolumePending", why.clone())
        }
        Hotplug::Detaching => {
            ("Detaching", "VolumeDetaching", format!("Waiting for the guest to release {name}"))
        }
    };
    status["phase"] = phase.into();
    status["reason"] = reason.into();
    status["message"] = message.into();
    status
}

/// As the pod's: guaranteed when everything that is requested is also the limit.
fn qos_class(vmi: &Vmi) -> &'static str {
    let Some(resources) = &vmi.spec.domain.resources else { return "Burstable" };
    let equal = |name: &str| {
        let limit = resources.limits.get(name).and_then(|limit| limit.amount());
        let request = resources.requests.get(name).and_then(|request| request.amount());
        limit.is_some() && (request.is_none() || request == limit)
    };
    if equal("cpu") && equal("memory") { "Guaranteed" } else { "Burstable" }
}

/// Bytes as Kubernetes writes them, in the largest unit without a rest.
pub(crate) fn quantity(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(name, size)| format!("{}{name}", bytes / size))
}

#[cfg(test)]
mod tests;
