//! The status of a volume that the guest's memory is dumped to. Pure.

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The state of a dump of the guest's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DumpReport {
    pub(crate) claim: String,
    /// The name that upstream would give to the file.
    pub(crate) file: String,
    pub(crate) started: Timestamp,
    pub(crate) ended: Option<Ended>,
}

/// The end of a dump, and why it failed if it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) at: Timestamp,
    pub(crate) failure: Option<String>,
}

/// Whether a dump to this volume has ended, as its status says.
pub(super) fn has_dumped(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("MemoryDumpCompleted" | "MemoryDumpFailed"))
}

pub(super) fn dump_info(report: &DumpReport) -> Value {
    let mut info = json!({
        "claimName": report.claim,
        "targetFileName": report.file,
        "startTimestamp": rfc3339(report.started),
    });
    if let Some(ended) = &report.ended {
        info["endTimestamp"] = rfc3339(ended.at).into();
    }
    info
}

/// Phase, reason and message of a volume that memory is dumped to, in upstream's words.
pub(super) fn dump_phase(name: &str, report: &DumpReport) -> (&'static str, &'static str, String) {
    match report.ended.as_ref().map(|ended| &ended.failure) {
        None => (
            "MemoryDumpInProgress",
            "VolumeMountedToPod",
            format!("Memory dump Volume {name} is attached, getting memory dump"),
        ),
        Some(None) => (
            "MemoryDumpCompleted",
            "VolumeReady",
            format!("Memory dump to Volume {name} has completed successfully"),
        ),
        Some(Some(why)) => (
            "MemoryDumpFailed",
            "MemoryDumpError",
            format!("Memory dump to pvc {name} failed: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_in_progress_then_completed_or_failed() {
        let started: Timestamp = "2026-11-16T08:00:00Z".parse().unwrap();
        let at = "2026-11-16T08:00:07Z".parse().unwrap();
        let ended = |failure: Option<&str>| Ended { at, failure: failure.map(str::to_owned) };
        for (ended, phase, message) in [
            (None, "MemoryDumpInProgress", "Memory dump Volume v is attached, getting memory dump"),
            (
                Some(ended(None)),
                "MemoryDumpCompleted",
                "Memory dump to Volume v has completed successfully",
            ),
            (Some(ended(Some("full"))), "MemoryDumpFailed", "Memory dump to pvc v failed: full"),
        ] {
            let report = DumpReport { claim: "c".into(), file: "f".into(), started, ended };
            let (reported, _, text) = dump_phase("v", &report);
            assert_eq!((reported, text.as_str()), (phase, message));
            assert_eq!(has_dumped(&json!({"phase": reported})), report.ended.is_some());
            let info = dump_info(&report);
            assert_eq!(info["startTimestamp"], "2026-11-16T08:00:00Z");
            let end = report.ended.map_or(Value::Null, |_| "2026-11-16T08:00:07Z".into());
            assert_eq!(info["endTimestamp"], end);
        }
    }
}
