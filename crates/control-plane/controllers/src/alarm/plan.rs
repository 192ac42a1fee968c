//! Faults of an object that need an administrator: pure.
//!
//! A rule names a state that lasts. States that pass by themselves are alarms only after a grace
//! period, and the consequences of an absent host are not alarms of their own.

use std::time::Duration;

use hci::alarm::{AlarmObject, AlarmStatus};
use hci::upgrade::LATEST_LABEL;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use virt::reason::NotReady;
use virt::v1::VirtualMachine;

use crate::condition;
use crate::longhorn::record::{BackupTargetFields, StorageNodeFields, VolumeFields};
use crate::object::{self, is_deleting, name, namespace, read};
use crate::record::condition::{condition, conditions, of_type};
use crate::record::fields;
use crate::vm_backup_schedule::BY_FAILURES;

fields! {
    struct ImageFields<'a> {
        spec: ImageSpec<'a>,
    }

    struct ImageSpec<'a> {
        display_name: &'a str,
    }

    /// A backup of a machine.
    struct BackupFields<'a> {
        spec: BackupSpec<'a>,
        status: BackupStatus<'a>,
    }

    struct BackupSpec<'a> {
        source: BackupSource<'a>,
    }

    struct BackupSource<'a> {
        name: &'a str,
    }

    struct BackupStatus<'a> {
        ready_to_use: bool,
        error: BackupFault<'a>,
    }

    struct BackupFault<'a> {
        message: &'a str,
    }
}

/// Rebuilds after a restart of a host are over sooner.
const COPIES_GRACE: Duration = Duration::from_secs(180);
/// Longer than a server or a network needs to come back.
const TARGET_GRACE: Duration = Duration::from_secs(120);
/// A machine that starts passes through states that appear as failures.
const MACHINE_GRACE: Duration = Duration::from_secs(60);
const HOST_GRACE: Duration = Duration::from_secs(10);

/// Kinds of objects that have alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Host,
    /// Longhorn's view of a host: its disks.
    Disks,
    Volume,
    Machine,
    Image,
    BackupTarget,
    Backup,
    BackupSchedule,
    Upgrade,
}

impl Subject {
    fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Host => ("v1", "Node"),
            Self::Disks => ("longhorn.io/v1beta2", "Node"),
            Self::Volume => ("longhorn.io/v1beta2", "Volume"),
            Self::Machine => ("kubevirt.io/v1", "VirtualMachine"),
            Self::Image => ("harvesterhci.io/v1beta1", "VirtualMachineImage"),
            Self::BackupTarget => ("longhorn.io/v1beta2", "BackupTarget"),
            Self::Backup => ("harvesterhci.io/v1beta1", "VirtualMachineBackup"),
            Self::BackupSchedule => ("harvesterhci.io/v1beta1", "ScheduleVMBackup"),
            Self::Upgrade => ("harvesterhci.io/v1beta1", "Upgrade"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlarmSeverity {
    /// Something does not run, or data is at risk.
    Critical,
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlarmFinding {
    pub(crate) rule: &'static str,
    pub(crate) severity: AlarmSeverity,
    pub(crate) summary: String,
    pub(crate) reason: String,
    pub(crate) remedy: String,
    /// How long it has to last.
    pub(crate) grace: Duration,
}

fn critical(rule: &'static str, summary: String) -> AlarmFinding {
    AlarmFinding {
        rule,
        severity: AlarmSeverity::Critical,
        summary,
        reason: String::new(),
        remedy: String::new(),
        grace: Duration::ZERO,
    }
}

fn warning(rule: &'static str, summary: String) -> AlarmFinding {
    AlarmFinding { severity: AlarmSeverity::Warning, ..critical(rule, summary) }
}

impl AlarmFinding {
    fn because(self, reason: &str) -> Self {
        Self { reason: reason.to_owned(), ..self }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    fn after(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The status of its alarm.
    pub(crate) fn status(&self, subject: Subject, object: &Value, since: &str) -> AlarmStatus {
        let (api_version, kind) = subject.kind();
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        AlarmStatus {
            rule: self.rule.to_owned(),
            severity: match self.severity {
                AlarmSeverity::Critical => "critical".to_owned(),
                AlarmSeverity::Warning => "warning".to_owned(),
            },
            object: AlarmObject {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: given(namespace(object)),
                name: name(object).to_owned(),
            },
            summary: self.summary.clone(),
            reason: given(&self.reason),
            remedy: given(&self.remedy),
            since: since.to_owned(),
        }
    }
}

/// The label of all alarms of an object: a hash, since names may be longer than labels.
pub(crate) fn label(subject: Subject, namespace: &str, name: &str) -> String {
    let (api_version, kind) = subject.kind();
    let digest = Sha256::digest(format!("{api_version}/{kind}/{namespace}/{name}"));
    let bytes: &[u8] = &digest;
    bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn alarm_name(rule: &str, label: &str) -> String {
    format!("{}-{label}", rule.to_ascii_lowercase())
}

/// The faults of the object. `absent_hosts` are the hosts that are not ready.
pub(crate) fn findings(
    subject: Subject,
    object: &Value,
    absent_hosts: &[String],
) -> Vec<AlarmFinding> {
    if is_deleting(object) {
        return Vec::new();
    }
    match subject {
        Subject::Host => host(object).into_iter().collect(),
        Subject::Disks => disks(object, absent_hosts),
        Subject::Volume => volume(object, absent_hosts),
        Subject::Machine => machine(object).into_iter().collect(),
        Subject::Image => image(object),
        Subject::BackupTarget => backup_target(object).into_iter().collect(),
        Subject::Backup => backup(object).into_iter().collect(),
        Subject::BackupSchedule => backup_schedule(object).into_iter().collect(),
        Subject::Upgrade => upgrade(object).into_iter().collect(),
    }
}

pub(crate) fn is_absent(node: &Value) -> bool {
    !condition::is(node, "Ready", "True")
}

/// The message of a condition with this status.
fn message_of<'a>(object: &'a Value, kind: &str, status: &str) -> Option<&'a str> {
    condition(object, kind).filter(|own| own.status == status).map(|own| own.message)
}

fn host(node: &Value) -> Option<AlarmFinding> {
    if !is_absent(node) {
        return None;
    }
    let name = name(node);
    let why = condition(node, "Ready").map_or("", |own| own.message);
    let alarm = critical("HostNotReady", format!("host {name} is not ready")).because(why);
    Some(alarm.remedy(format!("sheaf node show {name}")).after(HOST_GRACE))
}

fn disks(node: &Value, absent_hosts: &[String]) -> Vec<AlarmFinding> {
    let host = name(node);
    if absent_hosts.iter().any(|own| own == host) {
        return Vec::new();
    }
    let all = read::<StorageNodeFields<'_>>(node).status.disk_status;
    let mut found: Vec<AlarmFinding> = Vec::new();
    for (disk, status) in &all {
        let failed =
            |kind: &str| of_type(&status.conditions, kind).filter(|own| own.status == "False");
        let shown = if status.path.is_empty() { disk } else { status.path };
        let remedy = format!("kubectl -n longhorn-system describe nodes.longhorn.io {host}");
        if let Some(why) = failed("Ready") {
            let summary = format!("disk {shown} of host {host} cannot be used");
            let alarm = critical("DiskFailed", summary).because(why.message);
            found.push(alarm.remedy(remedy));
        } else if let Some(why) = failed("Schedulable")
            && why.reason == "DiskPressure"
        {
            let summary = format!("disk {shown} of host {host} is almost full");
            let alarm = warning("DiskFull", summary).because(why.message);
            found.push(alarm.remedy(remedy));
        }
    }
    // One alarm of each rule, for the first disk: names of alarms have no room for disks.
    found.sort_by_key(|own| own.rule);
    found.dedup_by_key(|own| own.rule);
    found
}

fn volume(volume: &Value, absent_hosts: &[String]) -> Vec<AlarmFinding> {
    let name = name(volume);
    let status = read::<VolumeFields<'_>>(volume).status;
    let claim = status.kubernetes_status;
    let shown = match claim.pvc_name {
        "" => format!("volume {name}"),
        own => format!("volume {name} (claim {}/{own})", claim.namespace),
    };
    let remedy = format!("sheaf volume status {name}");
    let mut found = Vec::new();
    match status.robustness {
        "faulted" => {
            let alarm = critical("VolumeFaulted", format!("{shown} has no usable copy"));
            found.push(alarm.remedy(remedy.clone()).after(HOST_GRACE));
        }
        // While a host is away, that is the alarm.
        "degraded" if absent_hosts.is_empty() => {
            let alarm = warning("VolumeDegraded", format!("{shown} lacks a copy"));
            found.push(alarm.remedy(remedy.clone()).after(COPIES_GRACE));
        }
        _ => {}
    }
    if let Some(why) = message_of(volume, "SnapshotsIntact", "False") {
        let alarm = critical("SnapshotDamaged", format!("a snapshot of {shown} is damaged"));
        found.push(alarm.because(why).remedy(remedy.clone()));
    }
    if let Some(why) = message_of(volume, "MetadataIntact", "False") {
        let alarm = critical("MetadataDamaged", format!("files of {shown} are damaged"));
        found.push(alarm.because(why).remedy(remedy));
    }
    found
}

/// A machine that is to run, and does not.
fn machine(object: &Value) -> Option<AlarmFinding> {
    let vm: VirtualMachine = serde_json::from_value(object.clone()).ok()?;
    let status = vm.status.unwrap_or_default();
    let state = status.printable_status.as_deref().unwrap_or_default();
    let (space, name) = (namespace(object), name(object));
    let what = match state {
        "CrashLoopBackOff" => "ends again and again",
        "ErrorUnschedulable" => "fits on no host",
        "DataVolumeError" => "has a disk that cannot be prepared",
        "ErrorPvcNotFound" | "ErrorDataVolumeNotFound" => "lacks a disk",
        "ErrImagePull" | "ImagePullBackOff" => "has an image that cannot be fetched",
        "Running" => {
            let ready = condition(object, "Ready")?;
            let is_stuck =
                ready.status == "False" && ready.reason == NotReady::NotResponding.as_str();
            if !is_stuck {
                return None;
            }
            "does not respond"
        }
        _ => return None,
    };
    let conditions = conditions(object);
    let why = ["Failure", "PodScheduled", "Synchronized", "Ready"].iter().find_map(|kind| {
        let own = of_type(&conditions, kind)?;
        let is_bad = own.status == if *kind == "Failure" { "True" } else { "False" };
        Some(own.message).filter(|why| is_bad && !why.is_empty())
    });
    let alarm = critical("MachineFailing", format!("machine {space}/{name} {what}"));
    let alarm = alarm.because(why.unwrap_or_default());
    Some(alarm.remedy(format!("sheaf vm why {name} -n {space}")).after(MACHINE_GRACE))
}

fn image(image: &Value) -> Vec<AlarmFinding> {
    let (space, name) = (namespace(image), name(image));
    let remedy = format!("kubectl -n {space} describe virtualmachineimages.harvesterhci.io {name}");
    let shown = match read::<ImageFields<'_>>(image).spec.display_name {
        "" => name,
        shown => shown,
    };
    let mut found = Vec::new();
    if let Some(why) = message_of(image, "Intact", "False") {
        let alarm = critical("ImageDamaged", format!("image {space}/{shown} is damaged"));
        found.push(alarm.because(why).remedy(remedy.clone()));
    }
    if let Some(why) = message_of(image, "RetryLimitExceeded", "True") {
        let alarm = warning("ImageFailed", format!("image {space}/{shown} was not imported"));
        found.push(alarm.because(why).remedy(remedy));
    }
    found
}

fn backup_target(target: &Value) -> Option<AlarmFinding> {
    let BackupTargetFields { spec, status } = read(target);
    if spec.url.is_empty() || status.available != Some(false) {
        return None;
    }
    let why = message_of(target, "Unavailable", "True").unwrap_or_default();
    let alarm = warning("BackupTargetUnavailable", "the backup target cannot be reached".into());
    let remedy = "kubectl get settings.harvesterhci.io backup-target -o yaml";
    Some(alarm.because(why).remedy(remedy).after(TARGET_GRACE))
}

fn backup(backup: &Value) -> Option<AlarmFinding> {
    let BackupFields { spec, status } = read(backup);
    let why = status.error.message;
    if why.is_empty() || status.ready_to_use {
        return None;
    }
    let (space, name) = (namespace(backup), name(backup));
    let machine = spec.source.name;
    let summary = format!("backup {space}/{name} of machine {machine} failed");
    let alarm = warning("BackupFailed", summary).because(why);
    Some(alarm.remedy(format!("kubectl -n {space} delete vmbackup {name}, and make a new one")))
}

/// A schedule that suspended itself. Of one that a user suspended, the user knows.
fn backup_schedule(schedule: &Value) -> Option<AlarmFinding> {
    let found = condition(schedule, "BackupSuspend")?;
    let is_by_failures = [found.reason, found.message].contains(&BY_FAILURES);
    if found.status != "True" || !is_by_failures {
        return None;
    }
    let (space, name) = (namespace(schedule), name(schedule));
    let summary = format!("backup schedule {space}/{name} is suspended, since its backups failed");
    let resume = r#"{"spec":{"suspend":false}}"#;
    let remedy = format!("kubectl -n {space} patch svmbackup {name} --type merge -p '{resume}'");
    Some(warning("BackupScheduleSuspended", summary).because(BY_FAILURES).remedy(remedy))
}

fn upgrade(upgrade: &Value) -> Option<AlarmFinding> {
    let found = condition(upgrade, "Completed")?;
    let is_latest = object::label(upgrade, LATEST_LABEL) == Some("true");
    let has_failed = found.status == "False" && found.reason == "Failed";
    if !(is_latest && has_failed) {
        return None;
    }
    let alarm = warning("UpgradeFailed", "the upgrade of the cluster failed".into());
    Some(alarm.because(found.message).remedy("sheaf upgrade status"))
}

#[cfg(test)]
mod tests;
