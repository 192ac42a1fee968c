//! Damage that a scrub found, in snapshots and in metadata: pure bookkeeping, bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ReplicaId, SnapshotId};
use crate::repl::control::ByteRange;
use crate::wire::MetadataReport;

/// Ranges that are named of one snapshot on one replica; of the others only the bytes count.
const MAX_RANGES: usize = 16;

/// Result of the last complete scrub of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScrubResult {
    /// Blocks that were repaired or could not be.
    pub bad_blocks: u64,
    /// Damage left in snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<SnapshotDamage>,
    /// Replicas with metadata that was damaged on disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<ReplicaMetadata>,
}

/// Metadata of a replica that was damaged on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaMetadata {
    pub replica: ReplicaId,
    #[serde(flatten)]
    pub report: MetadataReport,
}

/// Blocks of a snapshot that are damaged on a replica, while no other replica that could be reached
/// has them whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDamage {
    pub snapshot: SnapshotId,
    pub replica: ReplicaId,
    pub bytes: u64,
    /// Where, as far as it is listed.
    pub ranges: Vec<ByteRange>,
}

/// Damage by snapshot and replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DamageList(BTreeMap<(SnapshotId, ReplicaId), (u64, Vec<ByteRange>)>);

impl DamageList {
    pub(super) fn add(&mut self, snapshot: SnapshotId, replica: ReplicaId, range: ByteRange) {
        let (bytes, ranges) = self.0.entry((snapshot, replica)).or_default();
        *bytes += range.length;
        let has_room = ranges.len() < MAX_RANGES;
        match ranges.last_mut() {
            Some(last) if last.offset + last.length == range.offset => last.length += range.length,
            _ if has_room => ranges.push(range),
            _ => {}
        }
    }

    /// Of snapshots and replicas that there still are.
    pub(super) fn list(
        &self,
        exists: impl Fn(SnapshotId, ReplicaId) -> bool,
    ) -> Vec<SnapshotDamage> {
        let kept = self.0.iter().filter(|((snapshot, replica), _)| exists(*snapshot, *replica));
        let damage =
            |((snapshot, replica), (bytes, ranges)): (&(_, _), &(u64, Vec<_>))| SnapshotDamage {
                snapshot: *snapshot,
                replica: *replica,
                bytes: *bytes,
                ranges: ranges.clone(),
            };
        kept.map(damage).collect()
    }
}

/// Damage of metadata by replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetadataList(BTreeMap<ReplicaId, MetadataReport>);

impl MetadataList {
    pub(super) fn add(&mut self, replica: ReplicaId, report: MetadataReport) {
        if report == MetadataReport::default() {
            return;
        }
        let all = self.0.entry(replica).or_default();
        all.repaired += report.repaired;
        all.lost_pages += report.lost_pages;
        for damage in report.left {
            if all.left.len() < MAX_RANGES && !all.left.contains(&damage) {
                all.left.push(damage);
            }
        }
    }

    /// Of replicas that there still are.
    pub(super) fn list(&self, exists: impl Fn(ReplicaId) -> bool) -> Vec<ReplicaMetadata> {
        let kept = self.0.iter().filter(|(replica, _)| exists(**replica));
        let of = |(replica, report): (&ReplicaId, &MetadataReport)| ReplicaMetadata {
            replica: *replica,
            report: report.clone(),
        };
        kept.map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_listed_by_snapshot_and_replica_within_bounds() {
        let [one, two] = [1, 2].map(SnapshotId::from_u128);
        let [a, b] = [1, 2].map(ReplicaId::from_u128);
        let range = |offset, length| ByteRange { offset, length };
        let mut damage = DamageList::default();
        damage.add(one, a, range(0, 4096));
        damage.add(one, a, range(4096, 8192));
        damage.add(one, b, range(4096, 4096));
        for block in 0..100 {
            damage.add(two, b, range(block * 8192, 4096));
        }
        let all = damage.list(|_, _| true);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].bytes, all[0].ranges.as_slice()), (12288, &[range(0, 12288)][..]));
        assert_eq!((all[2].bytes, all[2].ranges.len()), (100 * 4096, MAX_RANGES));
        let left = |damage: &DamageList, exists: fn(u128, u128) -> bool| {
            let all =
                damage.list(|snapshot, replica| exists(snapshot.as_u128(), replica.as_u128()));
            all.len()
        };
        assert_eq!(left(&damage, |snapshot, _| snapshot == 2), 1, "a snapshot was deleted");
        assert_eq!(left(&damage, |_, replica| replica == 1), 1, "a replica was replaced");
    }
}
