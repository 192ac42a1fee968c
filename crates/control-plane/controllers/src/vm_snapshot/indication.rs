//! How a snapshot was taken, in KubeVirt's words. Pure.

use hci::together::{QUIESCE_LABEL, Quiesce};
use serde_json::{Value, json};

use crate::condition;
use crate::object::list;

/// The state of the guest in a label of the captured disks; `None` for a machine that did not run.
pub(super) fn quiesce(longhorn: &Value) -> Option<Quiesce> {
    Quiesce::parse(longhorn["status"]["labels"].get(QUIESCE_LABEL)?.as_str()?)
}

/// How many disks of a machine are captured, and how many cannot be.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskCoverage {
    pub(super) captured: usize,
    pub(super) left_out: usize,
}

/// The indications of a snapshot that begins, `vmi` being a guest that runs. Where no disk is
/// captured, the agent is not asked, and only its connection can be reported.
pub(super) fn at_start(vmi: Option<&Value>, disks: DiskCoverage) -> Vec<&'static str> {
    let mut all = Vec::new();
    if let Some(vmi) = vmi {
        let paused = condition::is(vmi, "Paused", "True");
        let agent = condition::is(vmi, "AgentConnected", "True");
        all.push("Online");
        if paused {
            all.push("Paused");
        } else if disks.captured == 0 {
            all.push(if agent { "GuestAgent" } else { "NoGuestAgent" });
        }
    }
    if disks.left_out > 0 {
        all.push("PartialSnapshot");
    }
    ordered(all)
}

/// By name, as upstream's are, and what is missing last.
fn ordered(mut all: Vec<&str>) -> Vec<&str> {
    all.sort_by_key(|own| (*own == "PartialSnapshot", *own));
    all
}

/// The indications of a snapshot whose disks are captured. Whether an agent is connected before
/// says nothing: it may refuse, or not answer.
pub(super) fn of(snapshot: &Value, quiesce: Option<Quiesce>) -> Vec<&str> {
    const ABOUT_AGENT: [&str; 3] = ["GuestAgent", "NoGuestAgent", "QuiesceFailed"];
    let before = list(snapshot, "/status/indications").iter().filter_map(Value::as_str);
    let is_kept = |own: &&str| quiesce.is_none() || !ABOUT_AGENT.contains(own);
    let mut all: Vec<&str> = before.filter(is_kept).collect();
    all.extend(match quiesce {
        Some(Quiesce::Frozen) => ["GuestAgent"].as_slice(),
        Some(Quiesce::Failed) => &["GuestAgent", "QuiesceFailed"],
        Some(Quiesce::NoAgent) => &["NoGuestAgent"],
        Some(Quiesce::Skipped) | None => &[],
    });
    ordered(all)
}

/// The same with explanations.
pub(super) fn explained(indications: &[&str]) -> Vec<Value> {
    let explained = indications.iter();
    explained.map(|own| json!({"indication": own, "message": explanation(own)})).collect()
}

fn explanation(indication: &str) -> &'static str {
    match indication {
        "Online" => "the guest was running when its disks were captured",
        "Paused" => "the guest was paused",
        "GuestAgent" => "the guest agent was connected and was asked to freeze the file systems",
        "NoGuestAgent" => {
            "no guest agent was connected: the file systems are as after a power failure"
        }
        "QuiesceFailed" => {
            "the guest agent refused to freeze the file systems or did not answer in time: they \
             are as after a power failure"
        }
        _ => "some volumes cannot be captured and are not part of the snapshot",
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::plan;
    use super::*;

    fn running(conditions: Value) -> Value {
        json!({"status": {"phase": "Running", "conditions": conditions}})
    }

    #[test]
    fn indications_say_whether_file_systems_were_frozen() {
        let vmi = running(json!([{"type": "AgentConnected", "status": "True"}]));
        let disks = DiskCoverage { captured: 1, left_out: 0 };
        let begun = at_start(Some(&vmi), disks);
        assert_eq!(begun, ["Online"], "the agent was not asked yet");
        let own = json!({"status": {"indications": begun}});
        for (label, expected) in [
            ("frozen", json!(["GuestAgent", "Online"])),
            ("failed", json!(["GuestAgent", "Online", "QuiesceFailed"])),
            ("no-agent", json!(["NoGuestAgent", "Online"])),
            ("skipped", json!(["Online"])),
            ("", json!(["Online"])),
        ] {
            let longhorn = json!({"status": {"labels": {QUIESCE_LABEL: label}}});
            let done = plan::succeeded(&own, &[], quiesce(&longhorn), Timestamp::UNIX_EPOCH);
            assert_eq!(done["status"]["indications"], expected, "{label}");
            let explained = list(&done, "/status/sourceIndications").len();
            assert_eq!(Some(explained), expected.as_array().map(Vec::len));
        }
    }

    #[test]
    fn a_guest_without_disks_to_freeze_reports_its_agent() {
        let agent = running(json!([{"type": "AgentConnected", "status": "True"}]));
        let bare = running(json!([]));
        let paused = running(json!([{"type": "Paused", "status": "True"}]));
        for (vmi, captured, left_out, expected) in [
            (None, 0, 0, json!([])),
            (Some(&agent), 0, 0, json!(["GuestAgent", "Online"])),
            (Some(&bare), 0, 1, json!(["NoGuestAgent", "Online", "PartialSnapshot"])),
            (Some(&bare), 1, 0, json!(["Online"])),
            (Some(&paused), 0, 0, json!(["Online", "Paused"])),
        ] {
            let begun = at_start(vmi, DiskCoverage { captured, left_out });
            assert_eq!(json!(begun), expected);
            let own = json!({"status": {"indications": begun}});
            assert_eq!(json!(of(&own, None)), expected, "kept to the end");
        }
    }
}
