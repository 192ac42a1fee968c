//! How a snapshot was taken, in KubeVirt's words. Pure.

use hci::together::{QUIESCE_LABEL, Quiesce};
use serde_json::{Value, json};

use crate::object::list;

/// What a label of the captured disks says about their guest; nothing for a machine that did
/// not run.
pub(super) fn quiesce(longhorn: &Value) -> Option<Quiesce> {
    Quiesce::parse(longhorn.pointer("/status/labels")?.get(QUIESCE_LABEL)?.as_str()?)
}

/// The indications of a snapshot whose disks are captured. Whether an agent is connected before
/// says nothing: it may refuse, or not answer.
pub(super) fn of(snapshot: &Value, quiesce: Option<Quiesce>) -> Vec<&str> {
    const ABOUT_AGENT: [&str; 3] = ["GuestAgent", "NoGuestAgent", "QuiesceFailed"];
    let before = list(snapshot, "/status/indications").iter().filter_map(Value::as_str);
    let mut all: Vec<&str> = before.filter(|own| !ABOUT_AGENT.contains(own)).collect();
    all.extend(match quiesce {
        Some(Quiesce::Frozen) => ["GuestAgent"].as_slice(),
        Some(Quiesce::Failed) => &["GuestAgent", "QuiesceFailed"],
        Some(Quiesce::NoAgent) => &["NoGuestAgent"],
        Some(Quiesce::Skipped) | None => &[],
    });
    all
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

    #[test]
    fn indications_say_whether_file_systems_were_frozen() {
        let vmi = json!({"status": {"phase": "Running",
            "conditions": [{"type": "AgentConnected", "status": "True"}]}});
        let own = json!({"metadata": {"name": "s", "uid": "u"}});
        let now = Timestamp::UNIX_EPOCH;
        let begun = plan::begun(&own, &json!({}), Some(&vmi), &[], now);
        assert_eq!(begun["status"]["indications"], json!(["Online"]), "nobody was asked yet");
        for (label, expected) in [
            ("frozen", json!(["Online", "GuestAgent"])),
            ("failed", json!(["Online", "GuestAgent", "QuiesceFailed"])),
            ("no-agent", json!(["Online", "NoGuestAgent"])),
            ("skipped", json!(["Online"])),
            ("", json!(["Online"])),
        ] {
            let longhorn = json!({"status": {"labels": {QUIESCE_LABEL: label}}});
            let done = plan::succeeded(&begun, &[], quiesce(&longhorn), now);
            assert_eq!(done["status"]["indications"], expected, "{label}");
            let explained = list(&done, "/status/sourceIndications").len();
            assert_eq!(Some(explained), expected.as_array().map(Vec::len));
        }
    }
}
