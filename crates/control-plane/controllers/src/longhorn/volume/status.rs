//! The status of a volume, and the events when it changes: pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use virt::reason::VolumeFailure;

use super::state::{Robustness, VolumeState};
use super::ticket::stamp;
use crate::condition::{self, Condition};
use crate::event::EventType;
use crate::longhorn::object::bytes;
use crate::object::{entries, flag, name, text};

/// The condition of an engine and its volume that says which blocks cannot be read.
pub(super) const READABLE: &str = "Readable";
/// The condition that lists damaged snapshots.
pub(super) const SNAPSHOTS_INTACT: &str = "SnapshotsIntact";

#[derive(Debug)]
pub(super) struct VolumeStatusInput {
    pub(super) state: VolumeState,
    pub(super) robustness: Robustness,
    /// Why there are fewer copies than there should be.
    pub(super) obstacle: Option<String>,
    /// Why it is not attached although it is wanted.
    pub(super) trouble: Option<String>,
    /// Which of its blocks cannot be read: a reason and a message.
    pub(super) unreadable: Option<(String, String)>,
    /// Which of its snapshots are damaged: the same.
    pub(super) damaged: Option<(String, String)>,
    pub(super) clone_status: Option<Value>,
    pub(super) expanding: bool,
}

pub(super) fn patch(
    volume: &Value,
    engine: Option<&Value>,
    told: VolumeStatusInput,
    now: Timestamp,
) -> Value {
    let mut conditions = condition::of(volume);
    let scheduled = match told.obstacle {
        None => Condition::new("Scheduled", "True"),
        Some(obstacle) => Condition::new("Scheduled", "False")
            .because(VolumeFailure::Scheduling.as_str(), obstacle),
    };
    condition::set(&mut conditions, &scheduled, now);
    match told.trouble {
        None => condition::remove(&mut conditions, "Attachable"),
        Some(trouble) => {
            let wanted = Condition::new("Attachable", "False")
                .because(VolumeFailure::Attach.as_str(), trouble);
            condition::set(&mut conditions, &wanted, now);
        }
    }
    for (kind, fault) in [(READABLE, told.unreadable), (SNAPSHOTS_INTACT, told.damaged)] {
        match fault {
            None => condition::remove(&mut conditions, kind),
            Some((reason, message)) => {
                let wanted = Condition::new(kind, "False").because(&reason, message);
                condition::set(&mut conditions, &wanted, now);
            }
        }
    }
    let node = engine.map_or("", |own| text(own, "/spec/nodeID"));
    let node = if told.state.is_up() { node } else { "" };
    let mut status = json!({
        "state": told.state.text(),
        "robustness": told.robustness.text(),
        "currentNodeID": node,
        "ownerID": node,
        "conditions": conditions,
        "expansionRequired": told.expanding,
        "frontendDisabled": false,
    });
    // The size on the disks is known while the engine reports it.
    let sizes = engine.into_iter().flat_map(|own| entries(own, "/status/snapshots"));
    let sizes: Vec<i64> = sizes.map(|(_, own)| bytes(own, "/size")).collect();
    if !sizes.is_empty() {
        status["actualSize"] = json!(sizes.iter().sum::<i64>());
    }
    match told.robustness {
        Robustness::Degraded if text(volume, "/status/lastDegradedAt").is_empty() => {
            status["lastDegradedAt"] = stamp(now);
        }
        Robustness::Healthy => status["lastDegradedAt"] = json!(""),
        _ => {}
    }
    let restored = restored_backup(text(volume, "/spec/fromBackup"));
    if let Some(backup) = restored {
        let last = engine.map_or("", |own| text(own, "/status/lastRestoredBackup"));
        // Once it holds the backup it is a volume like any other.
        let is_over = flag(volume, "/status/restoreRequired") == Some(false);
        status["restoreRequired"] = json!(!is_over && last != backup);
        status["restoreInitiated"] = json!(true);
    }
    if let Some(own) = told.clone_status {
        status["cloneStatus"] = own;
    }
    json!({"status": status})
}

/// The backup in the URL that a volume is restored from.
fn restored_backup(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("backup=")).filter(|name| !name.is_empty())
}

/// The events of a change, for users of the volume.
pub(super) fn events(volume: &Value, patch: &Value) -> Vec<(EventType, &'static str, String)> {
    let own = name(volume);
    let changed = |pointer: &str| {
        let (old, new) = (text(volume, pointer), text(patch, pointer));
        (old != new).then_some((old.to_owned(), new.to_owned()))
    };
    let mut events = Vec::new();
    match changed("/status/state").as_ref().map(|(old, new)| (old.as_str(), new.as_str())) {
        Some((_, "attached")) => {
            let node = text(patch, "/status/currentNodeID");
            let message = format!("volume {own} has been attached to {node}");
            events.push((EventType::Normal, "Attached", message));
        }
        Some(("detaching", "detached")) => {
            events.push((EventType::Normal, "Detached", format!("volume {own} has been detached")));
        }
        _ => {}
    }
    match changed("/status/robustness").as_ref().map(|(_, new)| new.as_str()) {
        Some("healthy") => {
            events.push((EventType::Normal, "Healthy", format!("volume {own} became healthy")));
        }
        Some("degraded") => {
            events.push((EventType::Normal, "Degraded", format!("volume {own} became degraded")));
        }
        Some("faulted") => {
            events.push((EventType::Warning, "Faulted", format!("volume {own} became faulted")));
        }
        _ => {}
    }
    for (kind, reason) in [(READABLE, "Unreadable"), (SNAPSHOTS_INTACT, "SnapshotDamaged")] {
        let message = |own: &Value| {
            let all = condition::of(own);
            condition::find(&all, kind).map(|it| text(it, "/message").to_owned())
        };
        if let (None, Some(message)) = (message(volume), message(patch)) {
            events.push((EventType::Warning, reason, format!("volume {own}: {message}")));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_restored_when_its_engine_says_so_and_stays_it() {
        let told = || VolumeStatusInput {
            state: VolumeState::Detached,
            robustness: Robustness::Unknown,
            obstacle: None,
            trouble: None,
            unreadable: None,
            damaged: None,
            clone_status: None,
            expanding: false,
        };
        let volume = json!({"spec": {"fromBackup": "s3://b@r/?backup=b1&volume=v"}});
        let required = |volume: &Value, last: &str| {
            let engine = json!({"status": {"lastRestoredBackup": last}});
            let patch = patch(volume, Some(&engine), told(), Timestamp::UNIX_EPOCH);
            patch["status"]["restoreRequired"].clone()
        };
        assert_eq!(required(&volume, ""), true);
        assert_eq!(required(&volume, "b0"), true);
        assert_eq!(required(&volume, "b1"), false);
        let mut over = volume.clone();
        over["status"] = json!({"restoreRequired": false});
        assert_eq!(required(&over, ""), false, "another engine knows nothing of it");
        assert_eq!(required(&json!({}), ""), Value::Null);
    }

    #[test]
    fn blocks_that_cannot_be_read_are_a_condition_and_one_event() {
        let now = Timestamp::UNIX_EPOCH;
        let told = |unreadable| VolumeStatusInput {
            state: VolumeState::Attached,
            robustness: Robustness::Healthy,
            obstacle: None,
            trouble: None,
            unreadable,
            damaged: None,
            clone_status: None,
            expanding: false,
        };
        let why = || Some(("ReplicasDiffer".to_owned(), "they differ".to_owned()));
        let warnings = |old: &Value, new: &Value| {
            let all = events(old, new);
            all.iter().filter(|(_, reason, _)| *reason == "Unreadable").count()
        };
        let volume = json!({"metadata": {"name": "v"}});
        let first = patch(&volume, None, told(why()), now);
        assert!(condition::is(&first, READABLE, "False"));
        assert_eq!(warnings(&volume, &first), 1);
        let second = patch(&first, None, told(why()), now);
        assert_eq!(warnings(&first, &second), 0, "it was told");
        let third = patch(&second, None, told(None), now);
        assert!(!condition::is(&third, READABLE, "False"));
    }

    #[test]
    fn damaged_snapshots_are_a_condition_and_one_event() {
        let now = Timestamp::UNIX_EPOCH;
        let told = |damaged| VolumeStatusInput {
            state: VolumeState::Attached,
            robustness: Robustness::Healthy,
            obstacle: None,
            trouble: None,
            unreadable: None,
            damaged,
            clone_status: None,
            expanding: false,
        };
        let why = || Some(("SnapshotDamaged".to_owned(), "snapshot s: 4096 bytes".to_owned()));
        let volume = json!({"metadata": {"name": "v"}});
        let first = patch(&volume, None, told(why()), now);
        assert!(condition::is(&first, SNAPSHOTS_INTACT, "False"));
        let told_first: Vec<_> = events(&volume, &first);
        assert!(told_first.iter().any(|(_, reason, text)| {
            *reason == "SnapshotDamaged" && text == "volume v: snapshot s: 4096 bytes"
        }));
        let second = patch(&first, None, told(why()), now);
        assert!(events(&first, &second).iter().all(|(_, reason, _)| *reason != "SnapshotDamaged"));
        let third = patch(&second, None, told(None), now);
        assert!(!condition::is(&third, SNAPSHOTS_INTACT, "False"), "a scrub found them whole");
    }
}
