//! The control plane's record of a volume, and how an engine changes it.
//!
//! One small record per volume, read and replaced by compare-and-swap. It is the only thing that
//! engines of different nodes agree through, so everything that must not be forgotten about who
//! may write and who has all writes is in it, and nothing else.

mod file;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use file::FileControl;
pub use memory::MemoryControl;

use crate::ids::{EngineId, Epoch, FlushMark, Generation, ReplicaId};

/// The name of a node, as the control plane spells it.
pub type NodeName = String;

/// More changes of the in-sync set than happen between a backup of the record and its restoration.
const SALVAGE_EPOCHS: u64 = 1 << 20;

/// The agreed state of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Grows with each activation; replicas refuse what is older than they promised.
    pub generation: Generation,
    /// The engine that took this generation.
    pub engine: Option<EngineId>,
    /// The replicas that have every acknowledged write.
    pub isr: BTreeSet<ReplicaId>,
    /// Grows with each change of `isr`.
    pub epoch: Epoch,
    /// The node that the volume is attached to. Any node may activate a volume that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<NodeName>,
    /// The node that may take the volume over while it is attached elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_target: Option<NodeName>,
    /// The last generation that the in-sync set promised before it was served. A replica of the
    /// set that has not promised it is older than that.
    #[serde(default)]
    pub confirmed: Generation,
    /// A flush that every replica of the set carried out. It lags behind: it is written when the
    /// set changes, and when the volume is taken or closed.
    #[serde(default)]
    pub flushed: FlushMark,
    /// Blocks that replicas have differently without evidence for either: they are not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disputed: Vec<ByteRange>,
    /// The newest flushes of replicas whose hosts could not prove them current, as they were when
    /// their dirty regions began to be compared. They decide until all of them have been: each
    /// engine that goes on with it makes a flush of its own first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reconciling: BTreeMap<ReplicaId, FlushMark>,
    /// The times that a user declared one replica to be the truth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub salvages: Vec<Salvage>,
}

/// Bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ByteRange {
    pub offset: u64,
    pub length: u64,
}

/// A user gave up the other in-sync replicas: acknowledged writes may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Salvage {
    pub kept: ReplicaId,
    pub given_up: BTreeSet<ReplicaId>,
    pub epoch: Epoch,
}

impl Record {
    /// A new volume, whose replicas are all empty and therefore in sync.
    pub fn new(isr: impl IntoIterator<Item = ReplicaId>) -> Self {
        Self { isr: isr.into_iter().collect(), epoch: Epoch(1), ..Self::default() }
    }

    /// Whether an engine on `node` may take the next generation.
    pub fn may_claim(&self, node: &str) -> bool {
        let is = |name: &Option<NodeName>| name.as_deref() == Some(node);
        self.attached.is_none() || is(&self.attached) || is(&self.migration_target)
    }

    /// The record after `engine` took the volume (rule R2).
    pub fn claimed(&self, engine: EngineId) -> Self {
        Self { generation: self.generation.next(), engine: Some(engine), ..self.clone() }
    }

    /// The record with another in-sync set. Every replica of the set has completed `flushed`.
    pub fn with_isr(&self, isr: BTreeSet<ReplicaId>, flushed: FlushMark) -> Self {
        let epoch = if isr == self.isr { self.epoch } else { self.epoch.next() };
        Self { isr, epoch, ..self.clone() }.with_flush(flushed)
    }

    /// The record after the replicas of `isr` promised its generation.
    pub fn confirmed(&self, isr: BTreeSet<ReplicaId>, flushed: FlushMark) -> Self {
        Self { confirmed: self.generation, ..self.with_isr(isr, flushed) }
    }

    /// The record after every in-sync replica has completed the flush `flushed`.
    pub fn with_flush(&self, flushed: FlushMark) -> Self {
        Self { flushed: self.flushed.max(flushed), ..self.clone() }
    }

    /// The record with a generation above `floor`, which some replica has promised already: the
    /// record was restored from an older copy.
    pub fn raised_above(&self, floor: Generation) -> Self {
        Self { generation: self.generation.max(floor).next(), ..self.clone() }
    }

    /// The record with an epoch that no replica has received, if one knows a newer epoch than the
    /// record: the record was restored from an older copy.
    pub fn above_epoch(&self, newest: Epoch) -> Self {
        let epoch = if self.epoch < newest { newest.next() } else { self.epoch };
        Self { epoch, ..self.clone() }
    }

    /// The record after `replica` alone was declared to be the truth. Done by an administrator:
    /// data that only the others have is lost. The new generation fences an engine that still
    /// runs.
    pub fn salvaged(&self, replica: ReplicaId) -> Self {
        // Above what a replica can know that cannot be reached now, if the record is an older copy.
        let epoch = Epoch(self.epoch.0.saturating_add(SALVAGE_EPOCHS));
        let mut given_up = self.isr.clone();
        given_up.remove(&replica);
        let mut salvages = self.salvages.clone();
        salvages.push(Salvage { kept: replica, given_up, epoch });
        Self {
            generation: self.generation.next(),
            engine: None,
            isr: BTreeSet::from([replica]),
            epoch,
            salvages,
            // The flush marks belong to replicas that were given up.
            confirmed: Generation::default(),
            flushed: FlushMark::default(),
            disputed: Vec::new(),
            reconciling: BTreeMap::new(),
            ..self.clone()
        }
    }
}

/// Names a state of the record; another after every change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// A record and its version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    pub version: Version,
    pub record: Record,
}

/// Where the record of one volume is kept.
pub trait ControlPlane {
    fn read(&self) -> Result<Versioned, ControlError>;

    /// Replaces the record if it still has version `expect`, and returns the new version.
    fn compare_and_swap(&self, expect: Version, record: &Record) -> Result<Version, ControlError>;
}

/// Why the record was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nothing was changed; this is what is there.
    #[error("the volume's record has changed, it is at version {}", .0.version.0)]
    Conflict(Box<Versioned>),
    /// A change may or may not have happened.
    #[error("the control plane cannot be reached")]
    Unavailable,
    #[error("cannot use the volume's record")]
    Io(#[source] std::io::Error),
    #[error("the volume's record cannot be understood")]
    Corrupt(#[source] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(n: u128) -> ReplicaId {
        ReplicaId::from_u128(n)
    }

    fn swap_contract(control: &dyn ControlPlane) {
        let first = control.read().unwrap();
        let claimed = first.record.claimed(EngineId::from_u128(1));
        let version = control.compare_and_swap(first.version, &claimed).unwrap();
        assert_eq!(control.read().unwrap(), Versioned { version, record: claimed.clone() });
        let late = first.record.claimed(EngineId::from_u128(2));
        match control.compare_and_swap(first.version, &late) {
            Err(ControlError::Conflict(now)) => assert_eq!(now.record, claimed),
            other => panic!("the second of two claims must lose: {other:?}"),
        }
    }

    #[test]
    fn of_two_claims_one_wins_in_memory() {
        swap_contract(&MemoryControl::new(Record::new([replica(1), replica(2)])));
    }

    #[test]
    fn of_two_claims_one_wins_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.json");
        FileControl::create(&path, &Record::new([replica(1)])).unwrap();
        swap_contract(&FileControl::open(&path).unwrap());
        let again = FileControl::open(&path).unwrap().read().unwrap();
        assert_eq!(again.record.generation, Generation(1));
        assert!(FileControl::create(&path, &Record::default()).is_err());
    }

    #[test]
    fn a_file_that_is_no_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.json");
        std::fs::write(&path, "{\"version\":").unwrap();
        let error = FileControl::open(&path).unwrap().read().unwrap_err();
        assert_eq!(error.to_string(), "the volume's record cannot be understood");
    }

    #[test]
    fn a_volume_is_claimed_where_it_is_attached_or_goes_to() {
        let mut record = Record::new([replica(1)]);
        assert!(record.may_claim("a"));
        record.attached = Some("a".into());
        assert!(record.may_claim("a") && !record.may_claim("b"));
        record.migration_target = Some("b".into());
        assert!(record.may_claim("a") && record.may_claim("b") && !record.may_claim("c"));
    }

    #[test]
    fn salvage_is_recorded_and_fences() {
        let record = Record::new([replica(1), replica(2)]).claimed(EngineId::from_u128(1));
        let after = record.salvaged(replica(2));
        assert_eq!(after.isr, BTreeSet::from([replica(2)]));
        assert!(after.generation > record.generation && after.engine.is_none());
        assert_eq!(after.salvages[0].given_up, BTreeSet::from([replica(1)]));
    }
}
