//! The phases of a memory dump, and the changes of the machine and the claim in each: pure.
//!
//! ```text
//!  Associating ─► InProgress ─┬► Unmounting ─► Completed
//!                             └► Failed
//!  any of them ─► Dissociating ─► (request removed)
//! ```

use virt::v1::{
    MemoryDumpVolumeSource, VirtualMachineInstance, VirtualMachineMemoryDumpRequest as Request,
    Volume, VolumeStatus,
};

/// The value of the annotation on the claim of a failed dump.
const FAILED: &str = "Memory dump failed";

/// The next step for a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MemoryDumpPlan {
    /// The new volumes of the instance.
    pub(super) volumes: Option<Vec<Volume>>,
    /// The value of the claim's annotation `kubevirt.io/memory-dump`.
    pub(super) annotation: Option<String>,
    pub(super) change: RequestChange,
}

/// The change to the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum RequestChange {
    #[default]
    None,
    Set(Request),
    Remove,
}

/// The instance's state of the volume of a dump.
#[derive(Debug, Default)]
struct Observed<'a> {
    running: bool,
    volumes: &'a [Volume],
    attached: bool,
    status: Option<VolumeStatus>,
}

impl<'a> Observed<'a> {
    fn of(vmi: Option<&'a VirtualMachineInstance>, claim: &str) -> Self {
        let Some(vmi) = vmi else { return Self::default() };
        let status = vmi.status.clone().unwrap_or_default();
        let own = vmi.spec.volumes.iter().find(|volume| volume.name == claim);
        Self {
            running: status.phase.as_deref() == Some("Running")
                && vmi.metadata.deletion_timestamp.is_none(),
            volumes: &vmi.spec.volumes,
            attached: own.is_some_and(|volume| volume.memory_dump.is_some()),
            status: status.volume_status.into_iter().find(|own| own.name == claim),
        }
    }

    fn is_released(&self) -> bool {
        !self.attached && self.status.is_none()
    }

    fn without(&self, claim: &str) -> Option<Vec<Volume>> {
        let rest = || self.volumes.iter().filter(|own| own.name != claim).cloned().collect();
        self.attached.then(rest)
    }

    fn with(&self, claim: &str) -> Vec<Volume> {
        let source = MemoryDumpVolumeSource {
            claim_name: claim.to_owned(),
            hotpluggable: Some(true),
            ..MemoryDumpVolumeSource::default()
        };
        let volume =
            Volume { name: claim.to_owned(), memory_dump: Some(source), ..Volume::default() };
        self.volumes.iter().cloned().chain([volume]).collect()
    }
}

/// `is_growing`: the claim is not as large yet as it was requested.
pub(super) fn plan(
    request: &Request,
    vmi: Option<&VirtualMachineInstance>,
    is_growing: bool,
) -> MemoryDumpPlan {
    let claim = request.claim_name.as_str();
    let seen = Observed::of(vmi, claim);
    match request.phase.as_str() {
        "Associating" if is_growing && seen.running => MemoryDumpPlan::default(),
        "Associating" => associate(request, &seen),
        "InProgress" => follow(request, &seen),
        "Unmounting" => MemoryDumpPlan {
            volumes: seen.without(claim),
            annotation: request.file_name.clone(),
            change: match seen.is_released() {
                true => into(request, "Completed"),
                false => RequestChange::None,
            },
        },
        "Failed" => MemoryDumpPlan {
            volumes: seen.without(claim),
            annotation: Some(FAILED.to_owned()),
            change: RequestChange::None,
        },
        "Dissociating" => MemoryDumpPlan {
            volumes: seen.without(claim),
            annotation: None,
            change: if seen.is_released() { RequestChange::Remove } else { RequestChange::None },
        },
        _ => MemoryDumpPlan::default(),
    }
}

/// The volume of an earlier dump is removed before that of this one is added.
fn associate(request: &Request, seen: &Observed<'_>) -> MemoryDumpPlan {
    let claim = request.claim_name.as_str();
    let clash = seen.volumes.iter().any(|own| own.name == claim && own.memory_dump.is_none());
    let change = if !seen.running {
        failed(request, "the virtual machine is not running".to_owned())
    } else if clash {
        failed(request, format!("the virtual machine already has a volume named {claim}"))
    } else if seen.is_released() {
        into(request, "InProgress")
    } else {
        RequestChange::None
    };
    MemoryDumpPlan { volumes: seen.without(claim), annotation: None, change }
}

fn follow(request: &Request, seen: &Observed<'_>) -> MemoryDumpPlan {
    if !seen.running {
        let why = "the virtual machine stopped before its memory was dumped".to_owned();
        return MemoryDumpPlan { change: failed(request, why), ..MemoryDumpPlan::default() };
    }
    if seen.is_released() {
        let volumes = Some(seen.with(&request.claim_name));
        return MemoryDumpPlan { volumes, ..MemoryDumpPlan::default() };
    }
    let Some(status) = &seen.status else { return MemoryDumpPlan::default() };
    let info = status.memory_dump_volume.clone().unwrap_or_default();
    let mut next = request.clone();
    next.start_timestamp = info.start_timestamp.or(next.start_timestamp);
    match status.phase.as_deref() {
        Some("MemoryDumpCompleted") => {
            next.phase = "Unmounting".to_owned();
            next.end_timestamp = info.end_timestamp;
            next.file_name = info.target_file_name;
        }
        Some("MemoryDumpFailed") => {
            next.phase = "Failed".to_owned();
            next.end_timestamp = info.end_timestamp;
            next.message.clone_from(&status.message);
        }
        _ => {}
    }
    let change = if next == *request { RequestChange::None } else { RequestChange::Set(next) };
    MemoryDumpPlan { change, ..MemoryDumpPlan::default() }
}

fn into(request: &Request, phase: &str) -> RequestChange {
    RequestChange::Set(Request { phase: phase.to_owned(), ..request.clone() })
}

fn failed(request: &Request, message: String) -> RequestChange {
    let phase = "Failed".to_owned();
    RequestChange::Set(Request { phase, message: Some(message), ..request.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(phase: &str) -> Request {
        Request { claim_name: "c".into(), phase: phase.into(), ..Request::default() }
    }

    fn vmi(phase: &str, attached: bool, status: Value) -> VirtualMachineInstance {
        let mut volumes = vec![json!({"name": "root", "containerDisk": {"image": "i"}})];
        if attached {
            let dump = json!({"claimName": "c", "hotpluggable": true});
            volumes.push(json!({"name": "c", "memoryDump": dump}));
        }
        let statuses = if status.is_null() { json!([]) } else { json!([status]) };
        serde_json::from_value(json!({
            "metadata": {"name": "m"}, "spec": {"domain": {"devices": {}}, "volumes": volumes},
            "status": {"phase": phase, "volumeStatus": statuses},
        }))
        .unwrap()
    }

    fn status(phase: &str) -> Value {
        json!({"name": "c", "target": "", "phase": phase, "message": "done", "memoryDumpVolume": {
            "claimName": "c", "targetFileName": "f", "startTimestamp": "2026-11-16T08:00:00Z",
            "endTimestamp": "2026-11-16T08:00:01Z"}})
    }

    /// Names of the new volumes, the annotation, the new phase.
    fn outcome(
        phase: &str,
        vmi: Option<&VirtualMachineInstance>,
    ) -> (Option<String>, Option<String>, String) {
        let plan = plan(&request(phase), vmi, false);
        let names =
            |all: Vec<Volume>| all.iter().map(|own| own.name.clone()).collect::<Vec<_>>().join(",");
        let phase = match plan.change {
            RequestChange::None => String::new(),
            RequestChange::Set(request) => request.phase,
            RequestChange::Remove => "removed".to_owned(),
        };
        (plan.volumes.map(names), plan.annotation, phase)
    }

    #[test]
    fn a_request_goes_through_its_phases() {
        let free = vmi("Running", false, Value::Null);
        let fresh = vmi("Running", true, Value::Null);
        let busy = vmi("Running", true, json!({"name": "c", "target": "", "phase": "Pending"}));
        let done = vmi("Running", true, status("MemoryDumpCompleted"));
        let broken = vmi("Running", true, status("MemoryDumpFailed"));
        let leaving = vmi("Running", false, status("MemoryDumpCompleted"));
        let ended = vmi("Succeeded", true, Value::Null);
        let attach = || Some("root,c".to_owned());
        let detach = || Some("root".to_owned());
        let failed = || Some(FAILED.to_owned());
        for (phase, vmi, volumes, annotation, next) in [
            ("Associating", Some(&free), None, None, "InProgress"),
            ("Associating", Some(&broken), detach(), None, ""),
            ("Associating", Some(&leaving), None, None, ""),
            ("Associating", None, None, None, "Failed"),
            ("InProgress", Some(&free), attach(), None, ""),
            ("InProgress", Some(&fresh), None, None, ""),
            ("InProgress", Some(&busy), None, None, ""),
            ("InProgress", Some(&done), None, None, "Unmounting"),
            ("InProgress", Some(&broken), None, None, "Failed"),
            ("InProgress", Some(&ended), None, None, "Failed"),
            ("InProgress", None, None, None, "Failed"),
            ("Unmounting", Some(&done), detach(), None, ""),
            ("Unmounting", Some(&leaving), None, None, ""),
            ("Unmounting", Some(&free), None, None, "Completed"),
            ("Unmounting", None, None, None, "Completed"),
            ("Failed", Some(&broken), detach(), failed(), ""),
            ("Failed", None, None, failed(), ""),
            ("Dissociating", Some(&done), detach(), None, ""),
            ("Dissociating", None, None, None, "removed"),
            ("Completed", Some(&free), None, None, ""),
        ] {
            assert_eq!(
                outcome(phase, vmi),
                (volumes, annotation, next.to_owned()),
                "{phase} {vmi:?}"
            );
        }
    }

    #[test]
    fn a_dump_that_is_complete_names_its_file_and_its_times() {
        let done = vmi("Running", true, status("MemoryDumpCompleted"));
        let RequestChange::Set(next) = plan(&request("InProgress"), Some(&done), false).change
        else {
            panic!("nothing changes")
        };
        assert_eq!(next.file_name.as_deref(), Some("f"));
        assert_eq!(next.end_timestamp.map(|time| time.0), Some("2026-11-16T08:00:01Z".into()));
        let annotation =
            plan(&Request { phase: "Unmounting".into(), ..next_with("f") }, None, false);
        assert_eq!(annotation.annotation.as_deref(), Some("f"));
        let broken = vmi("Running", true, status("MemoryDumpFailed"));
        let RequestChange::Set(next) = plan(&request("InProgress"), Some(&broken), false).change
        else {
            panic!("nothing changes")
        };
        assert_eq!(next.message.as_deref(), Some("done"));
        let free = vmi("Running", false, Value::Null);
        assert_eq!(plan(&request("Associating"), Some(&free), true), MemoryDumpPlan::default());
    }

    fn next_with(file: &str) -> Request {
        Request { file_name: Some(file.into()), ..request("InProgress") }
    }
}
