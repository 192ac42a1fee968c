//! The super block: the identity of this replica and the files of its directory.
//!
//! The file `super` has two slots of 256 KiB. A change is written to the first slot, and once
//! that is durable it is true; then it is written to the second. A power cut leaves at least one
//! whole copy, and at rest both are the same: one damaged slot costs nothing.
//! All numbers are little endian.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `SHEAFSUP` |
//! | 8 | 4 | format version: 2, or 1 if maps have no index |
//! | 12 | 4 | CRC-32C of the header's 4096 bytes, with this field zero |
//! | 16 | 8 | sequence; the valid slot with the greater one counts |
//! | 24 | 16 | volume id |
//! | 40 | 16 | replica id |
//! | 56 | 8 | size of the volume in bytes |
//! | 64 | 4 | block size, 4096 |
//! | 68 | 4 | blocks in a region, 512 |
//! | 72 | 4 | length of the body |
//! | 76 | 4 | CRC-32C of the body |
//! | 4096 | … | the body: [`Body`] as JSON, so that fields can be added and people can read |
//!
//! The file is allocated and written in full when the replica is created: a full disk cannot
//! keep a replica from recording a promise.

use serde::{Deserialize, Serialize};

use super::bytes_at::{get_u32, get_u64, get_u128, put_u32, put_u64, put_u128};
use super::crc::crc32c;
use super::geometry::{BLOCK, REGION_BLOCKS};
use super::layer::{Base, LayerTable, Work};
use super::request::Pin;
use crate::ids::{BootId, Epoch, FlushMarks, Generation, ReplicaId, SnapshotId, VolumeId};

const MAGIC: &[u8; 8] = b"SHEAFSUP";
/// The version of the whole on-disk format: super block, log, map, index.
pub const VERSION: u32 = 2;
/// The version without indexes. It is brought up to date when a replica is opened.
pub const FIRST_VERSION: u32 = 1;
const HEADER: usize = 4096;
pub const SLOT: u64 = 256 << 10;
/// Where the slots are, in the order in which they are written.
pub const SLOTS: [u64; 2] = [0, SLOT];
/// The longest body that fits a slot.
pub const MAX_BODY: usize = SLOT as usize - HEADER;

/// The newest state that was made durable as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct SuperBlock {
    pub seq: u64,
    pub volume: VolumeId,
    pub replica: ReplicaId,
    pub size: u64,
    pub body: Body,
}

/// The part of the super block that is kept as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// Counts the times the replica was opened for writing.
    pub session: u64,
    /// Present if the last session ended by a clean close, with the sequence of the next page of
    /// the log. Nothing in the log before it is needed.
    pub clean: Option<u64>,
    pub log_pages: u32,
    /// Pages of the log before this one were durable when this was written: a log that ends
    /// earlier is an older copy.
    #[serde(default)]
    pub log_next: u64,
    /// The kernel under which it is used, or was last.
    #[serde(default)]
    pub boot: Option<BootId>,
    /// Layers have an index.
    #[serde(default)]
    pub indexed: bool,
    /// Answered writes may be missing in regions that were not reconciled since.
    #[serde(default)]
    pub lost: bool,
    /// Places of the file of recent changes, if this session keeps them in one with a stamp.
    #[serde(default)]
    pub recent_places: u32,
    /// The file `sums` has the checksums of data that this session writes.
    #[serde(default)]
    pub summed: bool,
    /// Bytes that are kept free for replay.
    #[serde(default)]
    pub reserve: u64,
    pub promised: Generation,
    pub epoch: Epoch,
    /// Flushes, as far as they are known; the log may know newer ones. Absent until the first
    /// flush that has a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<FlushMarks>,
    pub layers: LayerTable,
    pub base: Option<Base>,
    /// Snapshots that clones in other directories read.
    pub pins: Vec<Pinned>,
    /// Background work that has begun; how far it came is in the log.
    pub work: Option<Work>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    pub snapshot: SnapshotId,
    pub by: Pin,
}

/// Why a slot does not hold a super block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    #[error("never written")]
    Empty,
    #[error("does not begin with the magic of a super block")]
    Magic,
    #[error("header checksum does not match")]
    HeaderChecksum,
    #[error("format version {found}; this program knows {VERSION}")]
    Version { found: u32 },
    #[error("block size {block} and {region} blocks in a region; this program knows 4096 and 512")]
    Geometry { block: u32, region: u32 },
    #[error("body of {len} bytes does not fit")]
    BodyLength { len: u32 },
    #[error("body checksum does not match")]
    BodyChecksum,
    #[error("body is not understood: {text}")]
    Body { text: String },
}

impl SuperBlock {
    /// The bytes of a slot, or the length of a body that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, usize> {
        let body = serde_json::to_vec(&self.body).expect("the body has no maps with odd keys");
        if body.len() > MAX_BODY {
            return Err(body.len());
        }
        let mut slot = vec![0; (HEADER + body.len()).next_multiple_of(BLOCK as usize)];
        slot[..8].copy_from_slice(MAGIC);
        put_u32(&mut slot, 8, if self.body.indexed { VERSION } else { FIRST_VERSION });
        put_u64(&mut slot, 16, self.seq);
        put_u128(&mut slot, 24, self.volume.as_u128());
        put_u128(&mut slot, 40, self.replica.as_u128());
        put_u64(&mut slot, 56, self.size);
        put_u32(&mut slot, 64, BLOCK as u32);
        put_u32(&mut slot, 68, REGION_BLOCKS);
        put_u32(&mut slot, 72, u32::try_from(body.len()).expect("less than a slot"));
        put_u32(&mut slot, 76, crc32c(&body));
        let crc = crc32c(&slot[..HEADER]);
        put_u32(&mut slot, 12, crc);
        slot[HEADER..HEADER + body.len()].copy_from_slice(&body);
        Ok(slot)
    }

    /// Reads a slot.
    pub fn decode(slot: &[u8]) -> Result<Self, SlotError> {
        let header = slot.get(..HEADER).ok_or(SlotError::Empty)?;
        if header.iter().all(|byte| *byte == 0) {
            return Err(SlotError::Empty);
        }
        if &header[..8] != MAGIC {
            return Err(SlotError::Magic);
        }
        let mut blank = header.to_vec();
        put_u32(&mut blank, 12, 0);
        if crc32c(&blank) != get_u32(header, 12) {
            return Err(SlotError::HeaderChecksum);
        }
        let version = get_u32(header, 8);
        if version != VERSION && version != FIRST_VERSION {
            return Err(SlotError::Version { found: version });
        }
        let (block, region) = (get_u32(header, 64), get_u32(header, 68));
        if u64::from(block) != BLOCK || region != REGION_BLOCKS {
            return Err(SlotError::Geometry { block, region });
        }
        let len = get_u32(header, 72);
        let body = slot
            .get(HEADER..HEADER + len as usize)
            .filter(|body| body.len() <= MAX_BODY)
            .ok_or(SlotError::BodyLength { len })?;
        if crc32c(body) != get_u32(header, 76) {
            return Err(SlotError::BodyChecksum);
        }
        let body = serde_json::from_slice(body)
            .map_err(|error| SlotError::Body { text: error.to_string() })?;
        Ok(Self {
            seq: get_u64(header, 16),
            volume: VolumeId::from_u128(get_u128(header, 24)),
            replica: ReplicaId::from_u128(get_u128(header, 40)),
            size: get_u64(header, 56),
            body,
        })
    }

    /// Picks the newer of two slots. A slot of another version wins over an older one that is
    /// understood: the replica has been upgraded since.
    pub fn choose(slots: [Result<Self, SlotError>; 2]) -> Result<Self, [SlotError; 2]> {
        match slots {
            [Ok(a), Ok(b)] => Ok(if a.seq > b.seq { a } else { b }),
            [Err(version @ SlotError::Version { .. }), other]
            | [other, Err(version @ SlotError::Version { .. })] => {
                Err([version, other.err().unwrap_or(SlotError::Empty)])
            }
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
            [Err(a), Err(b)] => Err([a, b]),
        }
    }

    /// Marks pages of the log and of maps as this replica's.
    pub fn tag(&self) -> u64 {
        tag(self.replica)
    }
}

/// The part of a replica's id that its pages carry.
pub fn tag(replica: ReplicaId) -> u64 {
    let id = replica.as_u128();
    (id >> 64) as u64 ^ id as u64
}
