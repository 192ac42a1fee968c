//! Requests to a replica, its replies, and its actions for the driver.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::files::FileId;
use super::geometry::{BLOCK, Region};
use super::metadata::{MetadataReport, Peers};
use super::slab::Key;
use crate::ids::{Epoch, FlushMarks, Generation, ReplicaId, SnapshotId, VolumeId};

/// Chosen by the caller, echoed in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Chosen by the replica, echoed by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub(crate) Key);

impl IoId {
    /// For drivers that carry a number, as io_uring does.
    pub fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }
}

/// Which content a read concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// The volume as its guest sees it.
    Head,
    /// The volume as it was when the snapshot was taken.
    Snapshot(SnapshotId),
}

/// Which layer is meant, alone and without what shows through from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerRef {
    Head,
    Snapshot(SnapshotId),
}

/// Something asked of a replica. Offsets and lengths are in bytes and multiples of [`BLOCK`].
///
/// The caller never has two overlapping writes in flight, nor a read over a write; everything
/// else may be submitted at any time and is answered in any order.
#[derive(Clone, Debug)]
pub enum Request {
    /// Answered by [`Reply::Data`].
    Read { view: View, offset: u64, len: u64 },
    /// As [`Request::Read`], for whoever compares the data with the map of the same range: blocks
    /// that are lost are answered as zeroes.
    Peek { view: View, offset: u64, len: u64 },
    /// `crcs` holds the checksum of each block. With `fua` the answer comes when the data is
    /// durable.
    Write { offset: u64, data: Bytes, crcs: Vec<u32>, fua: bool },
    /// As [`Request::Write`], into the layer of a snapshot that is being filled by a rebuild.
    Fill { layer: LayerRef, offset: u64, data: Bytes, crcs: Vec<u32> },
    /// As [`Request::Fill`], for blocks that the source has as zeroes, or (`Vacant`) not at all.
    FillZeroes { layer: LayerRef, offset: u64, len: u64, vacant: bool },
    /// The range reads as zeroes and takes no space.
    WriteZeroes { offset: u64, len: u64, fua: bool },
    /// The same as [`Request::WriteZeroes`]: every replica must answer reads alike.
    Discard { offset: u64, len: u64 },
    /// Everything answered before this was submitted is durable when it is answered.
    Flush,
    /// As [`Request::Flush`], and the marks are durable with it: evidence, for whoever compares
    /// replicas, of how far this one has come.
    FlushMarked { marks: FlushMarks },
    /// A snapshot is going to be taken: work that needs no hold of writes is done now.
    Prepare,
    /// Takes a snapshot of everything answered before. When it is answered, what is written goes
    /// on top of it, and the end of the process does not undo it; it is durable after
    /// [`Request::Seal`], and a power cut before that takes it away.
    Snapshot { id: SnapshotId, name: String, created: u64, labels: BTreeMap<String, String> },
    /// Answered when every snapshot that was taken is durable.
    Seal,
    /// Forgets a snapshot. Its space comes back as background work is granted.
    DeleteSnapshot { id: SnapshotId },
    /// Throws away the head and starts a new one from the snapshot.
    Revert { to: SnapshotId },
    /// Grows the volume.
    Expand { size: u64 },
    /// Answered by [`Reply::Map`]: the blocks of `view`, or those that `layer` alone holds.
    ReadMap { of: MapOf, offset: u64, len: u64 },
    /// Answered by [`Reply::Regions`]: regions whose content may differ between replicas.
    DirtyRegions,
    /// The regions left from before the last unclean stop have been compared with the peers.
    Reconciled { regions: Vec<Region> },
    /// The peers have what was written to these regions: they may leave the dirty-region log.
    /// Needed where [`super::Limits::settled_by_caller`] says so.
    Settle { regions: Vec<Region> },
    /// Refuses every generation below `generation` from now on, also after a crash.
    Promise { generation: Generation },
    /// Records the epoch of the in-sync set.
    SetEpoch { epoch: Epoch },
    /// Keeps a snapshot and what is below it as it is on disk, for a clone in another directory.
    Pin { snapshot: SnapshotId, pin: Pin },
    /// The clone is gone or no longer needs its base.
    Unpin { replica: ReplicaId },
    /// Copies everything that shows through from the base into own layers; then the base is
    /// no longer needed. Progress in [`super::Status`].
    Hydrate,
    /// The layer of a snapshot is complete and becomes immutable.
    SealLayer { id: SnapshotId },
    /// Reads a region's blocks of all layers and compares checksums.
    /// Answered by [`Reply::Scrubbed`].
    Scrub { region: Region },
    /// As [`Request::Scrub`], of the layers of snapshots only.
    ScrubSnapshots { region: Region },
    /// Compares the metadata on disk of a range of regions, and that of the whole replica if the
    /// range begins with the first, with memory, and repairs it. Answered by [`Reply::Metadata`],
    /// or not at all by a replica that stops because `peers` can rebuild it.
    ScrubMetadata { regions: std::ops::Range<u32>, peers: Peers },
    /// Rewrites blocks whose data was damaged. The checksums must be the recorded ones, so that
    /// it cannot change what a layer says; where they are lost, it says what they were.
    Repair { layer: LayerRef, offset: u64, data: Bytes, crcs: Vec<u32> },
    /// Writes everything back and marks the replica as cleanly stopped. Nothing may follow.
    CloseClean,
}

/// The target of [`Request::ReadMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapOf {
    View(View),
    Layer(LayerRef),
}

/// A pin on a snapshot, with its holder.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pin {
    pub volume: VolumeId,
    pub replica: ReplicaId,
    /// Where the clone is, for people.
    pub path: String,
}

/// The answer to a [`Request`] that succeeded.
#[derive(Clone, Debug)]
pub enum Reply {
    Done,
    Data(ReadData),
    Map(Vec<BlockInfo>),
    Regions(Vec<Region>),
    Scrubbed(Vec<BadBlock>),
    Metadata(MetadataReport),
}

/// The state of a block according to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockInfo {
    /// Nothing here: reads as zeroes in a view, shows what is below in a layer.
    Vacant,
    /// Zeroes that hide what is below.
    Zero,
    /// A raw image has no checksum.
    Data { crc: Option<u32> },
    /// Not known: the map is damaged here.
    Lost,
}

/// A block that is not what its checksum says, or whose checksum is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    pub layer: Option<SnapshotId>,
    pub offset: u64,
    /// Nothing if the map is damaged here; then the block was not read.
    pub expected: Option<u32>,
    pub found: u32,
}

/// The data of a read with the checksum of each block as it was recorded when it was written.
/// The store does not compare them: that is for the last hop before the guest, so that the way
/// there is covered too.
#[derive(Clone, Debug, Default)]
pub struct ReadData {
    pub parts: Vec<Part>,
    pub crcs: Vec<u32>,
}

#[derive(Clone, Debug)]
pub enum Part {
    Data(Bytes),
    /// So many bytes of zeroes.
    Zeroes(u64),
}

impl ReadData {
    /// The bytes in one piece; copies only if there are several parts.
    pub fn into_bytes(self) -> Bytes {
        if let [Part::Data(data)] = self.parts.as_slice() {
            return data.clone();
        }
        let mut all = BytesMut::with_capacity(self.crcs.len() * BLOCK as usize);
        for part in self.parts {
            match part {
                Part::Data(data) => all.extend_from_slice(&data),
                Part::Zeroes(len) => all.resize(all.len() + len as usize, 0),
            }
        }
        all.freeze()
    }
}

/// Why a request was refused or failed. Nothing has changed, except that a failed write may have
/// left its blocks with any mixture of old and new.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("range {offset}+{len} is not aligned to blocks of 4096 bytes")]
    Unaligned { offset: u64, len: u64 },
    #[error("range {offset}+{len} is outside of the volume of {size} bytes")]
    OutOfRange { offset: u64, len: u64, size: u64 },
    #[error("{len} bytes in one request; at most {} are possible", super::geometry::MAX_REQUEST)]
    TooLong { len: u64 },
    #[error("{crcs} checksums for {blocks} blocks")]
    CrcCount { blocks: u64, crcs: usize },
    #[error("checksum of the block at {offset} does not match its data")]
    Checksum { offset: u64 },
    #[error("no space left on the disk of the replica")]
    NoSpace,
    #[error("input/output error {errno} on {file}")]
    Io { file: FileId, errno: i32 },
    #[error("the block at {offset} is lost: the page of the map that describes it is damaged")]
    Lost { offset: u64 },
    #[error("snapshot {id} does not exist")]
    NoSuchSnapshot { id: SnapshotId },
    #[error("snapshot {id} exists already")]
    SnapshotExists { id: SnapshotId },
    #[error("snapshot {id} is complete and cannot be written")]
    SnapshotSealed { id: SnapshotId },
    #[error("{count} snapshots are the most a volume can have")]
    TooManySnapshots { count: usize },
    #[error("the layer table needs {bytes} bytes; {} are possible", super::super_block::MAX_BODY)]
    LayerTableFull { bytes: usize },
    #[error("size {size} is not valid: {reason}")]
    BadSize { size: u64, reason: &'static str },
    #[error("generation {requested} is older than the promised {promised}")]
    StaleGeneration { requested: Generation, promised: Generation },
    #[error("epoch {requested} is older than the recorded {recorded}")]
    StaleEpoch { requested: Epoch, recorded: Epoch },
    #[error("snapshot {id} is being merged; try again later")]
    SnapshotBusy { id: SnapshotId },
    #[error("the block at {offset} is not recorded with this checksum")]
    NotRecorded { offset: u64 },
    #[error("the replica has no base")]
    NoBase,
    #[error("the replica is closed")]
    Closed,
    #[error("the replica stopped: {reason}")]
    Stopped { reason: StopReason },
}

/// Why a replica stopped serving: its metadata on disk may be behind its memory. It must be
/// opened anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    #[error("cannot write {file}: error {errno}")]
    Write { file: FileId, errno: i32 },
    #[error("cannot make {file} durable: error {errno}")]
    Sync { file: FileId, errno: i32 },
    #[error("{file} is missing or damaged and cannot be repaired here")]
    Damaged { file: FileId },
}

/// The next operation of the driver.
#[derive(Debug)]
pub enum Action {
    Io(Io),
    Reply { id: RequestId, result: Result<Reply, RequestError> },
}

/// One operation on one file. Operations may be carried out in any order and at the same time.
#[derive(Clone, Debug)]
pub struct Io {
    pub id: IoId,
    pub file: FileId,
    pub op: IoOp,
}

#[derive(Clone, Debug)]
pub enum IoOp {
    /// Data past the end of the file reads as zeroes.
    Read { offset: u64, len: u64 },
    /// With `durable` it completes when the data is on stable storage (as `RWF_DSYNC`).
    Write { offset: u64, data: Bytes, durable: bool },
    /// Makes every write durable that completed before this was issued.
    Sync,
    /// Gives space back; the range reads as zeroes afterwards.
    Punch { offset: u64, len: u64 },
    /// Later writes to the range do not fail for lack of space; its content stays.
    Allocate { offset: u64, len: u64 },
    /// The file exists afterwards and is empty.
    Create,
    /// Cuts the file; used to give a large file back in slices.
    Truncate { len: u64 },
    /// The file does not exist afterwards.
    Remove,
    /// Makes creations and removals durable; `file` is [`FileId::Directory`].
    SyncDirectory,
    /// Succeeds if the name in the directory still is that of the file in use. Error 2 (ENOENT) if
    /// there is no such name, 116 (ESTALE) if it is that of another file.
    CheckName,
}

/// How an operation ended; the bytes are empty unless it was a read.
pub type IoResult = Result<Bytes, IoFault>;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoFault {
    #[error("no space left on device")]
    NoSpace,
    #[error("error {0}")]
    Errno(i32),
}

impl IoFault {
    pub fn errno(self) -> i32 {
        match self {
            Self::NoSpace => 28,
            Self::Errno(errno) => errno,
        }
    }
}
