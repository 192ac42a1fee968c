//! The status of a volume, and the events when it changes: pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use virt::reason::VolumeFailure;

use super::state::{Robustness, VolumeState};
use super::ticket::stamp;
use crate::condition::{self, Condition};
use crate::event::EventType;
use crate::longhorn::object::bytes;
use crate::longhorn::record::{EngineFields, VolumeFields};
use crate::object::{name, read};
use crate::record::condition::of_type;

/// The condition of an engine and its volume that says which blocks cannot be read.
pub(super) const READABLE: &str = "Readable";
/// The condition that lists damaged snapshots.
pub(super) const SNAPSHOTS_INTACT: &str = "SnapshotsIntact";
/// The condition that lists damaged files of the only replica.
pub(super) const METADATA_INTACT: &str = "MetadataIntact";

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
    /// Which files of its only replica are: the same.
    pub(super) metadata: Option<(String, String)>,
    pub(super) clone_status: Option<Value>,
    pub(super) expanding: bool,
}

/// Conditions that are there only while something is wrong, with their reasons and messages.
fn set_faults(
    conditions: &mut Vec<Value>,
    faults: [(&'static str, Option<(String, String)>); 3],
    now: Timestamp,
) {
    for (kind, fault) in faults {
        match fault {
            None => condition::remove(conditions, kind),
            Some((reason, message)) => {
                let wanted = Condition::new(kind, "False").because(&reason, message);
                condition::set(conditions, &wanted, now);
            }
        }
    }
}

pub(super) fn patch(
    volume: &Value,
    engine: Option<&Value>,
    input: VolumeStatusInput,
    now: Timestamp,
) -> Value {
    let mut conditions = condition::of(volume);
    let scheduled = match input.obstacle {
        None => Condition::new("Scheduled", "True"),
        Some(obstacle) => Condition::new("Scheduled", "False")
            .because(VolumeFailure::Scheduling.as_str(), obstacle),
    };
    condition::set(&mut conditions, &scheduled, now);
    match input.trouble {
        None => condition::remove(&mut conditions, "Attachable"),
        Some(trouble) => {
            let wanted = Condition::new("Attachable", "False")
                .because(VolumeFailure::Attach.as_str(), trouble);
            condition::set(&mut conditions, &wanted, now);
        }
    }
    let faults = [
        (READABLE, input.unreadable),
        (SNAPSHOTS_INTACT, input.damaged),
        (METADATA_INTACT, input.metadata),
    ];
    set_faults(&mut conditions, faults, now);
    let VolumeFields { spec, status: before } = read(volume);
    let engine: EngineFields<'_> = engine.map(read).unwrap_or_default();
    let node = engine.spec.node_id;
    let node = if input.state.is_up() { node } else { "" };
    let mut status = json!({
        "state": input.state.text(),
        "robustness": input.robustness.text(),
        "currentNodeID": node,
        "ownerID": node,
        "conditions": conditions,
        "expansionRequired": input.expanding,
        "frontendDisabled": false,
    });
    // The size on the disks is known while the engine reports it.
    let snapshots = &engine.status.snapshots;
    if !snapshots.is_empty() {
        status["actualSize"] = json!(snapshots.values().map(|own| bytes(own.size)).sum::<i64>());
    }
    match input.robustness {
        Robustness::Degraded if before.last_degraded_at.is_empty() => {
            status["lastDegradedAt"] = stamp(now);
        }
        Robustness::Healthy => status["lastDegradedAt"] = json!(""),
        _ => {}
    }
    let restored = restored_backup(spec.from_backup);
    if let Some(backup) = restored {
        let last = engine.status.last_restored_backup;
        // Once it holds the backup it is a volume like any other.
        let is_over = before.restore_required == Some(false);
        status["restoreRequired"] = json!(!is_over && last != backup);
        status["restoreInitiated"] = json!(true);
    }
    if let Some(own) = input.clone_status {
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
    let old = read::<VolumeFields<'_>>(volume).status;
    let new = read::<VolumeFields<'_>>(patch).status;
    let mut events = Vec::new();
    match (old.state, new.state) {
        (old, new) if old == new => {}
        (_, "attached") => {
            let node = new.current_node_id;
            let message = format!("volume {own} has been attached to {node}");
            events.push((EventType::Normal, "Attached", message));
        }
        ("detaching", "detached") => {
            events.push((EventType::Normal, "Detached", format!("volume {own} has been detached")));
        }
        _ => {}
    }
    match new.robustness {
        same if same == old.robustness => {}
        "healthy" => {
            events.push((EventType::Normal, "Healthy", format!("volume {own} became healthy")));
        }
        "degraded" => {
            events.push((EventType::Normal, "Degraded", format!("volume {own} became degraded")));
        }
        "faulted" => {
            events.push((EventType::Warning, "Faulted", format!("volume {own} became faulted")));
        }
        _ => {}
    }
    for (kind, reason) in [
        (READABLE, "Unreadable"),
        (SNAPSHOTS_INTACT, "SnapshotDamaged"),
        (METADATA_INTACT, "MetadataDamaged"),
    ] {
        if let (None, Some(fault)) =
            (of_type(&old.conditions, kind), of_type(&new.conditions, kind))
        {
            let message = fault.message;
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
        let input = || VolumeStatusInput {
            state: VolumeState::Detached,
            robustness: Robustness::Unknown,
            obstacle: None,
            trouble: None,
            unreadable: None,
            damaged: None,
            metadata: None,
            clone_status: None,
            expanding: false,
        };
        let volume = json!({"spec": {"fromBackup": "s3://b@r/?backup=b1&volume=v"}});
        let required = |volume: &Value, last: &str| {
            let engine = json!({"status": {"lastRestoredBackup": last}});
            let patch = patch(volume, Some(&engine), input(), Timestamp::UNIX_EPOCH);
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
        let input = |unreadable| VolumeStatusInput {
            state: VolumeState::Attached,
            robustness: Robustness::Healthy,
            obstacle: None,
            trouble: None,
            unreadable,
            damaged: None,
            metadata: None,
            clone_status: None,
            expanding: false,
        };
        let why = || Some(("ReplicasDiffer".to_owned(), "they differ".to_owned()));
        let warnings = |old: &Value, new: &Value| {
            let all = events(old, new);
            all.iter().filter(|(_, reason, _)| *reason == "Unreadable").count()
        };
        let volume = json!({"metadata": {"name": "v"}});
        let first = patch(&volume, None, input(why()), now);
        assert!(condition::is(&first, READABLE, "False"));
        assert_eq!(warnings(&volume, &first), 1);
        let second = patch(&first, None, input(why()), now);
        assert_eq!(warnings(&first, &second), 0, "it was reported");
        let third = patch(&second, None, input(None), now);
        assert!(!condition::is(&third, READABLE, "False"));
    }

    #[test]
    fn damaged_snapshots_are_a_condition_and_one_event() {
        let now = Timestamp::UNIX_EPOCH;
        let input = |damaged| VolumeStatusInput {
            state: VolumeState::Attached,
            robustness: Robustness::Healthy,
            obstacle: None,
            trouble: None,
            unreadable: None,
            damaged,
            metadata: None,
            clone_status: None,
            expanding: false,
        };
        let why = || Some(("SnapshotDamaged".to_owned(), "snapshot s: 4096 bytes".to_owned()));
        let volume = json!({"metadata": {"name": "v"}});
        let first = patch(&volume, None, input(why()), now);
        assert!(condition::is(&first, SNAPSHOTS_INTACT, "False"));
        let first_events: Vec<_> = events(&volume, &first);
        assert!(first_events.iter().any(|(_, reason, text)| {
            *reason == "SnapshotDamaged" && text == "volume v: snapshot s: 4096 bytes"
        }));
        let second = patch(&first, None, input(why()), now);
        assert!(events(&first, &second).iter().all(|(_, reason, _)| *reason != "SnapshotDamaged"));
        let third = patch(&second, None, input(None), now);
        assert!(!condition::is(&third, SNAPSHOTS_INTACT, "False"), "a scrub found them whole");
    }

    #[test]
    fn damaged_files_of_the_only_replica_are_a_condition_and_one_event() {
        let input = |metadata| VolumeStatusInput {
            state: VolumeState::Attached,
            robustness: Robustness::Healthy,
            obstacle: None,
            trouble: None,
            unreadable: None,
            damaged: None,
            metadata,
            clone_status: None,
            expanding: false,
        };
        let why = || Some(("MetadataDamaged".to_owned(), "file L0.data is missing".to_owned()));
        let volume = json!({"metadata": {"name": "v"}});
        let first = patch(&volume, None, input(why()), Timestamp::UNIX_EPOCH);
        assert!(condition::is(&first, METADATA_INTACT, "False"));
        let reported = |old: &Value, new: &Value| {
            events(old, new).iter().any(|(_, reason, _)| *reason == "MetadataDamaged")
        };
        assert!(reported(&volume, &first));
        let second = patch(&first, None, input(why()), Timestamp::UNIX_EPOCH);
        assert!(!reported(&first, &second));
        let third = patch(&second, None, input(None), Timestamp::UNIX_EPOCH);
        assert!(!condition::is(&third, METADATA_INTACT, "False"));
    }
}
