//! The status of a replica, as numbers that an API can publish.

use super::Replica;
use crate::ids::{Epoch, FlushMarks, Generation, ReplicaId, SnapshotId, VolumeId};
use crate::store::geometry::{BLOCK, Region, region_count};
use crate::store::layer::{LayerNo, SnapshotInfo, WorkKind};
use crate::store::open::BasePlace;
use crate::store::request::RequestError;

/// The state of a replica at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub volume: VolumeId,
    pub replica: ReplicaId,
    pub size: u64,
    pub promised: Generation,
    pub epoch: Epoch,
    pub marks: Option<FlushMarks>,
    /// Bytes of data that were written since the last snapshot.
    pub head_bytes: u64,
    /// From the newest to the oldest below the head, then those on other branches.
    pub snapshots: Vec<SnapshotStatus>,
    /// Bytes of data in own layers, those to be removed included.
    pub unique_bytes: u64,
    /// Bytes of data in the base, shared with others.
    pub shared_bytes: u64,
    pub work: Option<Progress>,
    /// Regions that are being written.
    pub active_regions: usize,
    /// Regions left by an unclean stop that were not reconciled with the peers.
    pub inherited_regions: usize,
    /// Blocks that had to be given a new checksum after an unclean stop.
    pub rechecked_blocks: u64,
    /// Bytes of memory for maps and regions.
    pub memory: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotStatus {
    pub info: SnapshotInfo,
    pub parent: Option<crate::ids::SnapshotId>,
    /// Bytes of data that only this snapshot's layer has.
    pub bytes: u64,
    /// Whether the head is above it.
    pub under_head: bool,
    pub filling: bool,
}

/// How far background work has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub kind: WorkKind,
    pub done_regions: u32,
    pub total_regions: u32,
    pub copied_bytes: u64,
    /// Why it does not go on. The next grant tries again.
    pub stalled: Option<RequestError>,
}

impl Replica {
    pub fn status(&self) -> Status {
        let body = &self.meta.body;
        let bytes = |file| self.counts.get(&file).copied().unwrap_or(0) * BLOCK;
        let under: Vec<_> = body.layers.chain(body.layers.head).map(|layer| layer.no).collect();
        let mut layers: Vec<_> = body.layers.snapshots().collect();
        layers.sort_by_key(|layer| {
            let depth = under.iter().position(|no| *no == layer.no);
            (depth.unwrap_or(usize::MAX), layer.no)
        });
        let snapshots = layers.into_iter().filter_map(|layer| {
            // The parent that a user knows: removed layers between do not count.
            let parent = body.layers.chain(layer.no).skip(1).find(|layer| !layer.removed);
            Some(SnapshotStatus {
                info: layer.snapshot.clone()?,
                parent: parent.and_then(|parent| parent.snapshot.as_ref()).map(|info| info.id),
                bytes: bytes(layer.file),
                under_head: under.contains(&layer.no),
                filling: layer.filling,
            })
        });
        Status {
            volume: self.meta.volume,
            replica: self.meta.replica,
            size: self.meta.size,
            promised: body.promised,
            epoch: body.epoch,
            marks: self.marks,
            head_bytes: bytes(body.layers.head().file),
            snapshots: snapshots.collect(),
            unique_bytes: self.counts.values().sum::<u64>() * BLOCK,
            shared_bytes: self.bases.iter().map(|base| base.bytes).sum(),
            work: self.progress(),
            active_regions: self.regions.active().count(),
            inherited_regions: self.regions.inherited(),
            rechecked_blocks: self.rechecked,
            memory: self.cache.memory()
                + self.index.memory()
                + self.regions.memory()
                + self.recent.memory()
                + self.sums.memory(),
        }
    }

    fn progress(&self) -> Option<Progress> {
        let work = self.meta.body.work.as_ref()?;
        let total = region_count(self.meta.size);
        Some(Progress {
            kind: work.kind,
            done_regions: self.work.cursor().0.min(total),
            total_regions: total,
            copied_bytes: self.work.copied,
            stalled: self.work.stalled.clone(),
        })
    }

    /// Where the files of bases are, in the order of their numbers.
    pub fn bases(&self) -> &[BasePlace] {
        &self.bases
    }

    /// Regions with a record in the dirty-region log.
    pub fn dirty_regions(&self) -> Vec<Region> {
        self.regions.active().map(|(region, _)| region).collect()
    }

    /// Whether writes that were answered before an unclean stop may be missing: a kernel stopped,
    /// not only a process, and the regions were not reconciled with the peers since.
    pub fn has_lost_writes(&self) -> bool {
        self.meta.body.lost && self.regions.inherited() > 0
    }

    /// The snapshot that the head is above.
    pub fn head_parent(&self) -> Option<SnapshotId> {
        let layers = &self.meta.body.layers;
        let below = layers.chain(layers.head).skip(1).find(|layer| !layer.removed)?;
        below.snapshot.as_ref().map(|info| info.id)
    }

    /// Grows with each snapshot that was taken.
    pub fn snapshot_order(&self, id: SnapshotId) -> Option<LayerNo> {
        self.meta.body.layers.by_snapshot(id).map(|layer| layer.no)
    }

    pub fn volume_size(&self) -> u64 {
        self.meta.size
    }
}
