//! The storage of a simulated replica: a model of a disk, or the real store on simulated files. Both
//! support the faults of `nemesis`: power cuts, damage, full disks.

use std::collections::BTreeSet;

use super::disk::{Blocks, ModelDisk};
use super::rng::Rng;
use super::stored::StoredDisk;
use crate::ids::{Epoch, FlushMark, Generation};
use crate::repl::disk::{Description, DiskReply, DiskRequest, DiskResult};
use crate::wire::SnapshotInfo;

#[derive(Debug)]
pub(crate) enum Disk {
    Model(Box<ModelDisk>),
    Stored(Box<StoredDisk>),
}

impl Disk {
    pub(crate) fn execute(&mut self, request: &DiskRequest) -> DiskResult {
        match self {
            Self::Model(disk) => disk.execute(request),
            Self::Stored(disk) => disk.execute(request),
        }
    }

    fn description(&mut self) -> Description {
        match self.execute(&DiskRequest::Describe) {
            Ok(DiskReply::Description(description)) => *description,
            other => panic!("a disk describes itself: {other:?}"),
        }
    }

    pub(crate) fn promised(&mut self) -> Generation {
        self.description().promised
    }

    /// The newest in-sync set that it has stored.
    pub(crate) fn epoch(&mut self) -> Epoch {
        self.description().epoch
    }

    /// The newest flush mark that it has made durable.
    pub(crate) fn flushed(&mut self) -> FlushMark {
        self.description().marks.unwrap_or_default().flushed
    }

    /// The newest durable mark of a flush that every member has carried out.
    pub(crate) fn completed(&mut self) -> FlushMark {
        self.description().marks.unwrap_or_default().complete
    }

    /// A copy of its directory, made while it may be in use.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Model(disk) => Self::Model(disk.clone()),
            Self::Stored(disk) => Self::Stored(Box::new(disk.copy())),
        }
    }

    pub(crate) fn size(&mut self) -> u64 {
        self.description().size
    }

    pub(crate) fn log(&mut self) -> BTreeSet<u32> {
        self.description().dirty.into_iter().collect()
    }

    pub(crate) fn snapshots(&mut self) -> Vec<SnapshotInfo> {
        self.description().snapshots
    }

    pub(crate) fn head(&mut self) -> Blocks {
        match self {
            Self::Model(disk) => disk.head().clone(),
            Self::Stored(disk) => disk.blocks(None),
        }
    }

    pub(crate) fn snapshot(&mut self, info: &SnapshotInfo) -> Blocks {
        match self {
            Self::Model(disk) => {
                let found = disk.snapshots().iter().find(|(known, _)| known.id == info.id);
                found.map(|(_, blocks)| blocks.clone()).unwrap_or_default()
            }
            Self::Stored(disk) => disk.blocks(Some(info.id)),
        }
    }

    pub(crate) fn set_full(&mut self, full: bool) {
        match self {
            Self::Model(disk) => disk.full = full,
            Self::Stored(disk) => disk.set_full(full),
        }
    }

    pub(crate) fn half_done(&mut self, request: &DiskRequest, rng: &mut Rng) {
        match self {
            Self::Model(disk) => disk.half_done(request, rng),
            Self::Stored(disk) => disk.half_done(request, rng),
        }
    }

    pub(crate) fn stopped(&mut self) {
        match self {
            Self::Model(disk) => disk.stopped(),
            Self::Stored(disk) => disk.stopped(),
        }
    }

    pub(crate) fn power_cut(&mut self, rng: &mut Rng) {
        match self {
            Self::Model(disk) => disk.power_cut(rng),
            Self::Stored(disk) => disk.power_cut(rng),
        }
    }

    pub(crate) fn damage_map(&mut self, rng: &mut Rng) {
        if let Self::Model(disk) = self {
            disk.damage_map(rng);
        }
    }

    pub(crate) fn rot_snapshot(&mut self, rng: &mut Rng) {
        if let Self::Model(disk) = self {
            disk.rot_snapshot(rng);
        }
    }

    pub(crate) fn rot(&mut self, rng: &mut Rng) {
        if let Self::Model(disk) = self {
            disk.rot(rng);
        }
    }
}
