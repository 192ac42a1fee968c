//! Damage that no replica can repair, in snapshots and in metadata, as reported in objects. Pure.
//!
//! It is known after a scrub. The result of an earlier engine stays in the objects until the next
//! scrub is complete: it is stored nowhere else.

use std::collections::BTreeMap;

use block::ids::{ReplicaId, SnapshotId};
use block::repl::engine::{ScrubResult, SnapshotDamage};
use block::run::VolumeStatus;
use jiff::Timestamp;
use serde_json::Value;
use virt::reason::VolumeFailure;

use super::status::condition;

/// The condition of an engine and its volume that says whether snapshots are damaged.
pub(super) const SNAPSHOTS_INTACT: &str = "SnapshotsIntact";
/// The condition of an engine and its volume that says whether files of a replica are damaged that
/// cannot be repaired while it runs.
pub(super) const METADATA_INTACT: &str = "MetadataIntact";
/// How the error of a damaged snapshot begins.
const DAMAGED: &str = "the snapshot is damaged: ";
/// Snapshots that a condition names.
const MAX_NAMED: usize = 8;

/// The recommended action.
const REMEDY: &str = "restore the data from a backup, or delete the snapshot; a scrub repairs it \
                      once a replica that has it whole is in sync again";

/// The same for metadata.
const METADATA_REMEDY: &str = "the replica is served from memory, do not restart it: back up the \
                               volume or give it another replica, and scrub it once that is in \
                               sync; then this one is rebuilt";

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
    let Some((status, scrub)) = scrubbed(status) else { return kept(old, SNAPSHOTS_INTACT) };
    let all = scrub.damage.iter().map(|it| of_snapshot(it, status, names));
    let message = format!("{}; {REMEDY}", list(all.collect())?);
    let reason = VolumeFailure::SnapshotDamaged.as_str();
    Some(condition(old, SNAPSHOTS_INTACT, false, reason, &message, now))
}

/// The condition of an engine with a replica whose files are damaged.
pub(super) fn metadata_condition(
    old: &Value,
    status: Option<&VolumeStatus>,
    names: &BTreeMap<ReplicaId, &str>,
    now: Timestamp,
) -> Option<Value> {
    let Some((_, scrub)) = scrubbed(status) else { return kept(old, METADATA_INTACT) };
    let all = scrub.metadata.iter().flat_map(|of| {
        let id = of.replica.to_string();
        let replica = names.get(&of.replica).map_or(id, |name| (*name).to_owned());
        let left = of.report.left.iter();
        left.map(move |it| format!("file {} of replica {replica} {}", it.file, it.fault))
    });
    let message = format!("{}; {METADATA_REMEDY}", list(all.collect())?);
    let reason = VolumeFailure::MetadataDamaged.as_str();
    Some(condition(old, METADATA_INTACT, false, reason, &message, now))
}

/// The result of the last scrub, if the engine that serves the volume has made one.
fn scrubbed(status: Option<&VolumeStatus>) -> Option<(&VolumeStatus, &ScrubResult)> {
    let status = status?;
    Some((status, status.last_scrub.as_ref()?))
}

fn kept(old: &Value, kind: &str) -> Option<Value> {
    let mut all = old.as_array().into_iter().flatten();
    all.find(|it| it["type"] == kind).cloned()
}

/// The first of them in one line; nothing if there is none.
fn list(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(MAX_NAMED);
    all.truncate(MAX_NAMED);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    (!all.is_empty()).then(|| all.join("; "))
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
    use block::repl::engine::ReplicaMetadata;
    use block::store::MetadataFault;
    use block::wire::{MetadataDamage, MetadataReport, SnapshotInfo};
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
        let bad = status(Some(ScrubResult { bad_blocks: 3, damage, metadata: vec![] }));
        let (whole, unknown) = (status(Some(ScrubResult::default())), status(None));
        let text = "12288 bytes of it cannot be read on replica v-r-7, the first 8192 at offset \
                    4096, and no other replica has them";

        let message = error(&bad, id, &names, "");
        assert_eq!(message, format!("the snapshot is damaged: {text}; {REMEDY}"));
        assert_eq!(error(&bad, SnapshotId::from_u128(2), &names, ""), "", "another one");
        assert_eq!(error(&unknown, id, &names, &message), message, "no scrub has ended since");
        assert_eq!(error(&unknown, id, &names, "no room"), "", "what passed is not kept");
        assert_eq!(error(&whole, id, &names, &message), "");

        let now = Timestamp::UNIX_EPOCH;
        let of =
            |old: &Value, status: Option<&VolumeStatus>| engine_condition(old, status, &names, now);
        let first = of(&Value::Null, Some(&bad)).unwrap();
        assert_eq!(first["status"], "False");
        assert_eq!(first["reason"], "SnapshotDamaged");
        assert_eq!(first["message"], format!("snapshot before-upgrade: {text}; {REMEDY}"));
        let old = json!([first]);
        assert_eq!(of(&old, None).as_ref(), Some(&first), "no engine serves it");
        assert_eq!(of(&old, Some(&unknown)).as_ref(), Some(&first), "another engine");
        assert_eq!(of(&old, Some(&whole)), None);
    }

    #[test]
    fn a_damaged_file_is_a_condition_until_a_scrub_finds_it_repaired() {
        let replica = ReplicaId::from_u128(7);
        let names = BTreeMap::from([(replica, "v-r-7")]);
        let left = vec![MetadataDamage { file: "L0.data".into(), fault: MetadataFault::Missing }];
        let report = MetadataReport { repaired: 1, lost_pages: 0, left };
        let metadata = vec![ReplicaMetadata { replica, report }];
        let bad = status(Some(ScrubResult { metadata, ..ScrubResult::default() }));
        let report = MetadataReport { repaired: 1, ..MetadataReport::default() };
        let metadata = vec![ReplicaMetadata { replica, report }];
        let repaired = status(Some(ScrubResult { metadata, ..ScrubResult::default() }));
        let of = |old: &Value, status: Option<&VolumeStatus>| {
            metadata_condition(old, status, &names, Timestamp::UNIX_EPOCH)
        };
        let first = of(&Value::Null, Some(&bad)).unwrap();
        assert_eq!(
            (&first["status"], &first["reason"]),
            (&json!("False"), &json!("MetadataDamaged"))
        );
        let text = "file L0.data of replica v-r-7 is missing from its directory";
        assert_eq!(first["message"], format!("{text}; {METADATA_REMEDY}"));
        let old = json!([first]);
        assert_eq!(of(&old, None).as_ref(), Some(&first), "no engine serves it");
        assert_eq!(of(&old, Some(&status(None))).as_ref(), Some(&first), "another engine");
        assert_eq!(of(&old, Some(&repaired)), None);
    }
}
