//! Requests of a replica's session to the store beneath it.
//!
//! The session knows a store only through these requests, so the same session runs over the store
//! on a disk and over a model of one. The rules of replication need of a store:
//!
//! - A region enters the dirty-region log durably before the first change in it, and leaves it
//!   on [`DiskRequest::Settle`] only: a local flush says nothing about the other replicas.
//! - A flush covers everything that was answered before it was asked for, by this process or
//!   an earlier one.
//! - What was answered survives the end of the process, flushed or not.
//! - A snapshot survives the end of the process when it is answered, and a power cut once
//!   [`DiskRequest::Seal`] is. A power cut before that takes it away, and nothing else that was
//!   durable. A promise that is answered seals what was cut before.
//! - Snapshot, delete, revert and resize can be repeated.

use bytes::Bytes;

use crate::ids::{Epoch, FlushMarks, Generation, SnapshotId};
use crate::wire::{
    BlockState, Crcs, DamagedBlock, MetadataReport, Refusal, SnapshotInfo, Verify, Witnessed,
};

#[derive(Debug, Clone, PartialEq)]
pub enum DiskRequest {
    Read {
        view: Option<SnapshotId>,
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
        crcs: Crcs,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        length: u32,
        fua: bool,
    },
    Discard {
        offset: u64,
        length: u32,
    },
    /// The marks become durable with the flush, not before what it covers.
    Flush {
        marks: Option<FlushMarks>,
    },
    /// Before a snapshot, so that it is quick.
    Prepare,
    Snapshot(SnapshotInfo),
    Seal,
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    Revert {
        to: Option<SnapshotId>,
    },
    Resize {
        size: u64,
    },
    ReadMap {
        view: Option<SnapshotId>,
        offset: u64,
        length: u32,
        verify: Verify,
    },
    /// Blocks of the layers of snapshots that are not what their checksums say.
    Scrub {
        offset: u64,
        length: u32,
    },
    /// Verifies the metadata on disk. The store stops if it cannot repair it, unless it is `alone`.
    ScrubMetadata {
        offset: u64,
        length: u32,
        alone: bool,
    },
    /// The right content of a damaged block of a snapshot.
    Repair {
        snapshot: SnapshotId,
        offset: u64,
        data: Bytes,
        crcs: Crcs,
    },
    Dirty,
    /// Takes regions out of the dirty-region log. It counts from when it is asked, not from when
    /// it is answered: a change that is asked for after it puts its region in again.
    Settle {
        regions: Vec<u32>,
    },
    /// Durable before it is answered.
    Promise {
        generation: Generation,
    },
    SetEpoch {
        epoch: Epoch,
    },
    /// The regions that were dirty before this session have been compared with the other replicas:
    /// the content is the same.
    Reconciled,
    CloseClean,
    Describe,
}

#[derive(Debug, Clone, PartialEq)]
pub enum DiskReply {
    Done,
    Data { data: Bytes, crcs: Crcs },
    Map(Vec<BlockState>),
    Dirty(Vec<u32>),
    Damage(Vec<DamagedBlock>),
    Metadata(MetadataReport),
    Description(Box<Description>),
}

/// A store's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub promised: Generation,
    pub epoch: Epoch,
    /// Absent in a replica that never took part in a flush with a number.
    pub marks: Option<FlushMarks>,
    pub witnessed: Witnessed,
    pub size: u64,
    /// Bytes of a region of the dirty-region log.
    pub region: u64,
    /// Writes that were answered but not flushed may be missing in the dirty regions, because
    /// the kernel that had them is gone. Stays so until they are reconciled.
    pub lost_writes: bool,
    pub dirty: Vec<u32>,
    /// Oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    pub head_parent: Option<SnapshotId>,
}

/// The store's answer.
pub type DiskResult = Result<DiskReply, Refusal>;
