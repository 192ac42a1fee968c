//! The layers of a replica: which exist, what lies under what, and what becomes of those that
//! are not needed. Pure: every change makes a new table, which counts once the super block that
//! holds it is durable.
//!
//! ```text
//!            base (another directory or an image, read only)
//!              │
//!            layer  snapshot "monday"
//!            ╱    ╲
//!   "tuesday"      "wednesday"         a branch left behind by a revert
//!       │
//!     head                             the only layer a guest writes to
//! ```
//!
//! A block that a layer does not have shows through from its parent. A layer's blocks are in the
//! file pair with the layer's file number.
//!
//! A deleted snapshot stays as a *removed* layer until it has no child (then it is dropped) or
//! one (then the two are merged):
//!
//! ```text
//! up    the parent's blocks that the child lacks are copied into the child
//! down  the child's blocks are copied over the parent's; regions below the cursor are
//!       read from and written to the parent, and at the end the child takes over the parent's
//!       files
//! ```
//!
//! The visible content is the same at every moment of both. The direction is the one with less to
//! copy. A layer under a pin, or being filled, is left alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::files::{FileId, FileNo, Place};
use super::geometry::Region;
use super::index::Root;
use super::super_block::Pinned;
use crate::ids::{ReplicaId, SnapshotId, VolumeId};

/// Snapshots of a volume, as many as Longhorn allows.
pub const MAX_SNAPSHOTS: usize = 250;

/// Names a layer; never used twice in a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerNo(pub u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    pub no: LayerNo,
    pub file: FileNo,
    pub parent: Option<LayerNo>,
    /// Nothing for the head and for a removed layer that once was a head.
    pub snapshot: Option<SnapshotInfo>,
    pub removed: bool,
    /// A rebuild writes to it still.
    pub filling: bool,
    /// Was the head until a snapshot was cut, and is not known to be durable as a whole: a power
    /// cut takes the snapshot away. See [`Self::take_back`].
    #[serde(default)]
    pub unsealed: bool,
    /// Became immutable while some of its checksums were not to be believed: they are verified in
    /// the regions that the log names, like those of the head.
    #[serde(default)]
    pub unverified: bool,
    /// Blocks of data in it. The log has the newer number after an unclean stop.
    pub blocks: u64,
    /// The expected digest of its index. The log has the newer one after an unclean stop.
    #[serde(default)]
    pub root: Option<Root>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: String,
    /// Seconds since 1970, as the caller said.
    pub created: u64,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerTable {
    pub next: u32,
    pub head: LayerNo,
    pub layers: Vec<Layer>,
}

/// Distinguishes images: a hash of its size and of blocks all over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageIdentity(pub String);

/// The base under the oldest own layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// A snapshot in another replica's directory, pinned there.
    Replica { path: String, volume: VolumeId, replica: ReplicaId, snapshot: SnapshotId },
    /// A raw image that is never changed, and what it was when it became a base:
    /// [`describe_image`](super::describe_image).
    Image {
        path: String,
        bytes: u64,
        #[serde(default)]
        identity: Option<ImageIdentity>,
    },
}

/// Work that goes on over restarts. `cursor` is the first region not yet done, or an older one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Distinguishes the cursors of different pieces of work in the log.
    pub no: u32,
    pub kind: WorkKind,
    pub cursor: Region,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    MergeUp {
        from: LayerNo,
        into: LayerNo,
    },
    MergeDown {
        from: LayerNo,
        into: LayerNo,
    },
    /// Copies what shows through from the base into the oldest layer.
    Hydrate {
        into: LayerNo,
    },
}

impl WorkKind {
    /// The layers that it concerns.
    pub fn layers(self) -> Vec<LayerNo> {
        match self {
            Self::MergeUp { from, into } | Self::MergeDown { from, into } => vec![from, into],
            Self::Hydrate { into } => vec![into],
        }
    }

    /// Whether the work reads or writes the layer.
    pub fn concerns(self, layer: LayerNo) -> bool {
        match self {
            Self::MergeUp { from, into } | Self::MergeDown { from, into } => {
                from == layer || into == layer
            }
            Self::Hydrate { into } => into == layer,
        }
    }

    /// The layer that the work writes.
    pub fn target(self) -> LayerNo {
        match self {
            Self::MergeUp { into, .. } | Self::MergeDown { into, .. } | Self::Hydrate { into } => {
                into
            }
        }
    }
}

/// One step of a lookup: a file pair and the regions it counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub data: FileId,
    pub map: Content,
    /// Regions before this one have moved to the next link.
    pub from: Region,
}

/// How to know which blocks a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Map(FileId),
    /// Every block up to the end of the image.
    Image {
        bytes: u64,
        /// Its blocks have checksums.
        summed: bool,
    },
}

/// The files of layers whose checksums may be older than their data: the head, what background
/// work or a rebuild writes, and what was one of these until recently.
pub(crate) fn written_files(layers: &LayerTable, work: Option<&Work>) -> Vec<FileNo> {
    let target = work.map(|work| work.kind.target());
    let written = layers.layers.iter().filter(|layer| {
        layer.filling
            || layer.unsealed
            || layer.unverified
            || layer.no == layers.head
            || Some(layer.no) == target
    });
    written.map(|layer| layer.file).collect()
}

/// How a removed layer is disposed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    Drop(LayerNo),
    Merge(WorkKind),
}

impl LayerTable {
    /// A table with an empty head.
    pub fn new() -> Self {
        let head = LayerNo(0);
        Self { next: 1, head, layers: vec![Layer::empty(head, FileNo(0), None)] }
    }

    pub fn get(&self, no: LayerNo) -> &Layer {
        self.layers.iter().find(|layer| layer.no == no).expect("layers name only layers that exist")
    }

    pub fn get_mut(&mut self, no: LayerNo) -> &mut Layer {
        let found = self.layers.iter_mut().find(|layer| layer.no == no);
        found.expect("layers name only layers that exist")
    }

    pub fn head(&self) -> &Layer {
        self.get(self.head)
    }

    pub fn by_snapshot(&self, id: SnapshotId) -> Option<&Layer> {
        self.snapshots().find(|layer| layer.snapshot.as_ref().is_some_and(|info| info.id == id))
    }

    /// The layer of a snapshot that a clone reads, which may have been deleted since.
    pub fn pinned(&self, id: SnapshotId) -> Option<&Layer> {
        let is = |layer: &&Layer| layer.snapshot.as_ref().is_some_and(|info| info.id == id);
        self.layers.iter().find(is)
    }

    pub fn by_file(&self, file: FileNo) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.file == file)
    }

    /// Layers that are snapshots in the eyes of a user.
    pub fn snapshots(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| layer.snapshot.is_some() && !layer.removed)
    }

    fn children(&self, no: LayerNo) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.parent == Some(no))
    }

    /// A layer and all below it.
    pub fn chain(&self, top: LayerNo) -> impl Iterator<Item = &Layer> {
        std::iter::successors(Some(self.get(top)), |layer| layer.parent.map(|no| self.get(no)))
    }

    /// The number of the next layer and its files; taken by [`Self::push_head`].
    pub fn next_file(&self) -> FileNo {
        FileNo(self.next)
    }

    /// The head becomes the snapshot, a new empty head goes on top.
    pub fn snapshot(&mut self, info: SnapshotInfo) {
        let old = self.head;
        let layer = self.get_mut(old);
        layer.snapshot = Some(info);
        layer.unsealed = true;
        self.push_head(Some(old));
    }

    /// Every snapshot is durable.
    pub fn seal(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.unsealed = false);
    }

    pub fn is_sealed(&self) -> bool {
        self.layers.iter().all(|layer| !layer.unsealed)
    }

    /// A new head over the snapshot; the old one is removed.
    pub fn revert(&mut self, to: LayerNo) {
        let old = self.head;
        self.push_head(Some(to));
        self.get_mut(old).removed = true;
    }

    fn push_head(&mut self, parent: Option<LayerNo>) {
        let no = LayerNo(self.next);
        self.layers.push(Layer::empty(no, FileNo(self.next), parent));
        self.next += 1;
        self.head = no;
    }

    /// The disposal of a removed layer that is possible now, if any.
    pub fn disposal(&self, pins: &[Pinned]) -> Option<Disposal> {
        let frozen = self.frozen(pins);
        self.layers.iter().filter(|layer| layer.removed).find_map(|layer| {
            let mut children = self.children(layer.no);
            let (child, more) = (children.next(), children.next());
            if frozen.contains(&layer.no) {
                return None;
            }
            let Some(child) = child else { return Some(Disposal::Drop(layer.no)) };
            let busy = child.filling || layer.filling;
            if more.is_some() || busy || frozen.contains(&child.no) {
                return None;
            }
            let kind = if child.blocks < layer.blocks {
                WorkKind::MergeDown { from: child.no, into: layer.no }
            } else {
                WorkKind::MergeUp { from: layer.no, into: child.no }
            };
            Some(Disposal::Merge(kind))
        })
    }

    /// Layers that a clone elsewhere reads.
    fn frozen(&self, pins: &[Pinned]) -> Vec<LayerNo> {
        let tops = pins.iter().filter_map(|pin| self.pinned(pin.snapshot));
        tops.flat_map(|top| self.chain(top.no)).map(|layer| layer.no).collect()
    }

    /// Takes a removed layer without children out. Gives the number of its files.
    pub fn drop_layer(&mut self, no: LayerNo) -> FileNo {
        debug_assert!(self.get(no).removed && self.children(no).next().is_none());
        let file = self.get(no).file;
        self.layers.retain(|layer| layer.no != no);
        file
    }

    /// Completes a merge. Gives the number of the files that are no longer needed.
    pub fn finish(&mut self, kind: WorkKind) -> Option<FileNo> {
        match kind {
            WorkKind::MergeUp { from, into } => {
                let (parent, file) = (self.get(from).parent, self.get(from).file);
                self.get_mut(into).parent = parent;
                self.layers.retain(|layer| layer.no != from);
                Some(file)
            }
            WorkKind::MergeDown { from, into } => {
                let under = self.get(into).clone();
                let top = self.get_mut(from);
                let file = std::mem::replace(&mut top.file, under.file);
                top.parent = under.parent;
                top.unverified |= under.unverified;
                top.blocks = under.blocks;
                top.root = under.root;
                self.layers.retain(|layer| layer.no != into);
                Some(file)
            }
            WorkKind::Hydrate { .. } => None,
        }
    }

    /// The links a lookup from `top` goes through, own layers only.
    pub fn links(&self, top: LayerNo, work: Option<&Work>) -> Vec<Link> {
        let link = |layer: &Layer| {
            let moved = match work {
                Some(Work { kind: WorkKind::MergeDown { from, .. }, cursor, .. })
                    if *from == layer.no =>
                {
                    *cursor
                }
                _ => Region(0),
            };
            Link {
                data: FileId::Data(Place::Own, layer.file),
                map: Content::Map(FileId::Map(Place::Own, layer.file)),
                from: moved,
            }
        };
        self.chain(top).map(link).collect()
    }
}

impl Default for LayerTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer {
    fn empty(no: LayerNo, file: FileNo, parent: Option<LayerNo>) -> Self {
        Self {
            no,
            file,
            parent,
            snapshot: None,
            removed: false,
            filling: false,
            unsealed: false,
            unverified: false,
            blocks: 0,
            root: None,
        }
    }

    /// The power failed before the snapshot was durable, and some of its content was lost: it
    /// counts as never taken. The content that the head shows through it is as durable as ever.
    pub fn take_back(&mut self) {
        self.unsealed = false;
        self.snapshot = None;
        self.removed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: u128) -> SnapshotInfo {
        SnapshotInfo {
            id: SnapshotId::from_u128(number),
            name: format!("s{number}"),
            created: 0,
            labels: BTreeMap::new(),
        }
    }

    fn table(snapshots: u128) -> LayerTable {
        let mut table = LayerTable::new();
        (1..=snapshots).for_each(|number| table.snapshot(info(number)));
        table
    }

    fn files(table: &LayerTable) -> Vec<u32> {
        table.chain(table.head).map(|layer| layer.file.0).collect()
    }

    #[test]
    fn a_snapshot_puts_a_new_head_on_top() {
        let table = table(2);
        assert_eq!(files(&table), [2, 1, 0]);
        assert_eq!(table.by_snapshot(SnapshotId::from_u128(1)).map(|l| l.file), Some(FileNo(0)));
        assert_eq!(table.head().snapshot, None);
    }

    #[test]
    fn a_removed_layer_is_merged_the_cheaper_way() {
        let mut table = table(2);
        table.get_mut(LayerNo(0)).removed = true;
        for (parent, child, up) in [(5, 9, true), (9, 5, false)] {
            table.get_mut(LayerNo(0)).blocks = parent;
            table.get_mut(LayerNo(1)).blocks = child;
            let (from, into) = (LayerNo(0), LayerNo(1));
            let expected = if up {
                WorkKind::MergeUp { from, into }
            } else {
                WorkKind::MergeDown { from: into, into: from }
            };
            assert_eq!(table.disposal(&[]), Some(Disposal::Merge(expected)));
            let mut done = table.clone();
            let dropped = done.finish(expected);
            assert_eq!(dropped, Some(FileNo(if up { 0 } else { 1 })));
            assert_eq!(files(&done), if up { [2, 1] } else { [2, 0] });
            assert!(done.by_snapshot(SnapshotId::from_u128(2)).is_some());
        }
    }

    #[test]
    fn a_layer_with_two_children_waits_for_one_to_go() {
        let mut table = table(2);
        table.revert(LayerNo(0));
        assert_eq!(table.disposal(&[]), Some(Disposal::Drop(LayerNo(2))));
        table.drop_layer(LayerNo(2));
        table.get_mut(LayerNo(0)).removed = true;
        assert_eq!(table.disposal(&[]), None);
        table.get_mut(LayerNo(1)).removed = true;
        assert_eq!(table.disposal(&[]), Some(Disposal::Drop(LayerNo(1))));
    }

    #[test]
    fn what_a_clone_reads_is_left_alone() {
        let mut table = table(3);
        table.get_mut(LayerNo(0)).removed = true;
        let by = super::super::request::Pin {
            volume: VolumeId::from_u128(1),
            replica: ReplicaId::from_u128(1),
            path: String::new(),
        };
        let pin = |number| vec![Pinned { snapshot: SnapshotId::from_u128(number), by: by.clone() }];
        assert_eq!(table.disposal(&pin(2)), None);
        assert_eq!(table.disposal(&pin(3)), None);
        assert!(table.disposal(&[]).is_some());
    }

    #[test]
    fn a_merge_down_moves_regions_below_its_cursor() {
        let table = table(1);
        let kind = WorkKind::MergeDown { from: LayerNo(1), into: LayerNo(0) };
        let work = Work { no: 1, kind, cursor: Region(7) };
        let from: Vec<u32> =
            table.links(table.head, Some(&work)).iter().map(|l| l.from.0).collect();
        assert_eq!(from, [7, 0]);
    }
}
