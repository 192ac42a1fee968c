//! Damage in snapshots that no replica can repair, as reported in objects. Pure.
//!
//! It is known after a scrub. The result of an earlier engine stays in the objects until the next
//! scrub is complete: it is stored nowhere else.

use std::collections::BTreeMap;

use block::ids::{ReplicaId, SnapshotId};
use block::repl::engine::SnapshotDamage;
use block::run::VolumeStatus;
use jiff::Timestamp;
use serde_json::Value;
use virt::reason::VolumeFailure;

use super::status::condition;

/// The condition of an engine and its volume that says whether snapshots are damaged.
pub(super) const SNAPSHOTS_INTACT: &str = "SnapshotsIntact";
/// How the error of a damaged snapshot begins.
const DAMAGED: &str = "the snapshot is damaged: ";
/// Snapshots that a condition names.
const MAX_NAMED: usize = 8;

/// The recommended action.
const REMEDY: &str = "restore the data from a backup, or delete the snapshot; a scrub repairs it \
                      once a replica that has it whole is in sync again";

/// The error of a snapshot; empty if it is whole.
pub(super) fn error(
    status: &VolumeStatus,
    id: SnapshotId,
    names: &BTreeMap<ReplicaId, &str>,
    before: &str,
) -> String {
    let Some(scrub) = &status.last_scrub else {
        return if before.starts_with(DAMAGED) { before.to_owned() } else { String::new() };
    };
    let own = scrub.damage.iter().filter(|it| it.snapshot == id);
    let all: Vec<String> = own.map(|it| describe(it, names)).collect();
    if all.is_empty() { String::new() } else { format!("{DAMAGED}{}; {REMEDY}", all.join("; ")) }
}

/// The condition of an engine whose snapshots are damaged.
pub(super) fn engine_condition(
    old: &Value,
    status: Option<&VolumeStatus>,
    names: &BTreeMap<ReplicaId, &str>,
    now: Timestamp,
) -> Option<Value> {
    let kept = || {
        let mut all = old.as_array().into_iter().flatten();
        all.find(|it| it["type"] == SNAPSHOTS_INTACT).cloned()
    };
    let Some(status) = status else { return kept() };
    let Some(scrub) = &status.last_scrub else { return kept() };
    let mut all: Vec<String> =
        scrub.damage.iter().map(|it| of_snapshot(it, status, names)).collect();
    if all.is_empty() {
        return None;
    }
    let more = all.len().saturating_sub(MAX_NAMED);
    all.truncate(MAX_NAMED);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    let message = format!("{}; {REMEDY}", all.join("; "));
    let reason = VolumeFailure::SnapshotDamaged.as_str();
    Some(condition(old, SNAPSHOTS_INTACT, false, reason, &message, now))
}

fn of_snapshot(
    damage: &SnapshotDamage,
    status: &VolumeStatus,
    names: &BTreeMap<ReplicaId, &str>,
) -> String {
    let info = status.snapshots.iter().find(|it| it.id == damage.snapshot);
    let snapshot = info.map_or_else(|| damage.snapshot.to_string(), |it| it.name.clone());
    format!("snapshot {snapshot}: {}", describe(damage, names))
}

fn describe(damage: &SnapshotDamage, names: &BTreeMap<ReplicaId, &str>) -> String {
    let id = damage.replica.to_string();
    let replica = names.get(&damage.replica).copied().unwrap_or(id.as_str());
    let first = damage.ranges.first();
    let place = first.map_or_else(String::new, |it| {
        format!(", the first {} at offset {}", it.length, it.offset)
    });
    format!(
        "{} bytes of it cannot be read on replica {replica}{place}, and no other replica has them",
        damage.bytes
    )
}

#[cfg(test)]
mod tests {
    use block::ids::{Epoch, Generation};
    use block::repl::control::ByteRange;
    use block::repl::engine::ScrubResult;
    use block::wire::SnapshotInfo;
    use serde_json::json;

    use super::*;

    fn status(last_scrub: Option<ScrubResult>) -> VolumeStatus {
        VolumeStatus {
            phase: "active".into(),
            generation: Generation(1),
            epoch: Epoch(1),
            size: 1 << 20,
            replicas: vec![],
            unreconciled: 0,
            unproven: false,
            disputed: vec![],
            lost: vec![],
            scrubbed_bytes: None,
            last_scrub,
            waiting: None,
            snapshots: vec![SnapshotInfo {
                id: SnapshotId::from_u128(1),
                parent: None,
                created: "1".into(),
                name: "before-upgrade".into(),
                labels: BTreeMap::new(),
            }],
        }
    }

    #[test]
    fn a_damaged_snapshot_says_where_and_what_to_do_until_a_scrub_finds_it_whole() {
        let id = SnapshotId::from_u128(1);
        let replica = ReplicaId::from_u128(7);
        let names = BTreeMap::from([(replica, "v-r-7")]);
        let ranges = vec![ByteRange { offset: 4096, length: 8192 }];
        let damage = vec![SnapshotDamage { snapshot: id, replica, bytes: 12288, ranges }];
        let bad = status(Some(ScrubResult { bad_blocks: 3, damage }));
        let (whole, unknown) = (status(Some(ScrubResult::default())), status(None));
        let text = "12288 bytes of it cannot be read on replica v-r-7, the first 8192 at offset \
                    4096, and no other replica has them";

        let told = error(&bad, id, &names, "");
        assert_eq!(told, format!("the snapshot is damaged: {text}; {REMEDY}"));
        assert_eq!(error(&bad, SnapshotId::from_u128(2), &names, ""), "", "another one");
        assert_eq!(error(&unknown, id, &names, &told), told, "no scrub has ended since");
        assert_eq!(error(&unknown, id, &names, "no room"), "", "what passed is not kept");
        assert_eq!(error(&whole, id, &names, &told), "");

        let now = Timestamp::UNIX_EPOCH;
        let of =
            |old: &Value, status: Option<&VolumeStatus>| engine_condition(old, status, &names, now);
        let first = of(&Value::Null, Some(&bad)).unwrap();
        assert_eq!(first["status"], "False");
        assert_eq!(first["reason"], "SnapshotDamaged");
        assert_eq!(first["message"], format!("snapshot before-upgrade: {text}; {REMEDY}"));
        let old = json!([first]);
        assert_eq!(of(&old, None).as_ref(), Some(&first), "nobody serves it");
        assert_eq!(of(&old, Some(&unknown)).as_ref(), Some(&first), "another engine");
        assert_eq!(of(&old, Some(&whole)), None);
    }
}
