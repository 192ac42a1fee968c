//! The 64 bytes that begin every frame.

use super::{MAX_PAYLOAD, WireError};

/// Bytes of a header.
pub const HEADER: usize = 64;

/// `SHB` and the version of the framing.
const MAGIC: u32 = u32::from_le_bytes(*b"SHB\x01");

/// The operation of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    Hello = 1,
    Open = 2,
    Write = 3,
    Read = 4,
    Flush = 5,
    Discard = 6,
    WriteZeroes = 7,
    Snapshot = 8,
    Revert = 9,
    DeleteSnapshot = 10,
    Resize = 11,
    ReadMap = 12,
    Dirty = 13,
    Copy = 14,
    Ping = 15,
    Close = 16,
    SetEpoch = 17,
    Reconciled = 18,
    Prepare = 19,
    Seal = 20,
    Scrub = 21,
    Repair = 22,
    ScrubMetadata = 23,
}

impl Op {
    const ALL: [Self; 23] = [
        Self::Hello,
        Self::Open,
        Self::Write,
        Self::Read,
        Self::Flush,
        Self::Discard,
        Self::WriteZeroes,
        Self::Snapshot,
        Self::Revert,
        Self::DeleteSnapshot,
        Self::Resize,
        Self::ReadMap,
        Self::Dirty,
        Self::Copy,
        Self::Ping,
        Self::Close,
        Self::SetEpoch,
        Self::Reconciled,
        Self::Prepare,
        Self::Seal,
        Self::Scrub,
        Self::Repair,
        Self::ScrubMetadata,
    ];

    fn parse(value: u8) -> Result<Self, WireError> {
        let found = Self::ALL.into_iter().find(|op| *op as u8 == value);
        found.ok_or(WireError::UnknownOp(value))
    }
}

/// Bits of the `flags` byte.
pub(super) mod flag {
    /// The frame is an answer.
    pub(in crate::wire) const ANSWER: u8 = 1;
    /// The write is durable before its answer.
    pub(in crate::wire) const FUA: u8 = 2;
    /// The content that is found counts as right from now on.
    pub(in crate::wire) const ADOPT: u8 = 4;
    /// The call concerns a snapshot, whose id is in the payload.
    pub(in crate::wire) const VIEW: u8 = 8;
    /// Blocks are read, not only looked up.
    pub(in crate::wire) const DEEP: u8 = 16;
    /// Blocks are summed with a key, which ends the payload.
    pub(in crate::wire) const KEYED: u8 = 32;
    /// No other replica is in sync.
    pub(in crate::wire) const ALONE: u8 = 64;
}

/// A header, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub op: Op,
    pub flags: u8,
    pub status: u16,
    pub id: u64,
    pub generation: u64,
    pub seq: u64,
    pub offset: u64,
    pub length: u32,
    pub payload: u32,
    pub table: u32,
    pub payload_crc: u32,
}

impl Header {
    pub(super) fn new(op: Op) -> Self {
        Self {
            op,
            flags: 0,
            status: 0,
            id: 0,
            generation: 0,
            seq: 0,
            offset: 0,
            length: 0,
            payload: 0,
            table: 0,
            payload_crc: 0,
        }
    }

    pub(super) fn has(&self, bit: u8) -> bool {
        self.flags & bit != 0
    }

    /// How many bytes of the payload `payload_crc` covers.
    pub(super) fn summed(&self) -> usize {
        if self.table > 0 { self.table as usize * 4 } else { self.payload as usize }
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = self.op as u8;
        out[5] = self.flags;
        out[6..8].copy_from_slice(&self.status.to_le_bytes());
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.seq.to_le_bytes());
        out[32..40].copy_from_slice(&self.offset.to_le_bytes());
        out[40..44].copy_from_slice(&self.length.to_le_bytes());
        out[44..48].copy_from_slice(&self.payload.to_le_bytes());
        out[48..52].copy_from_slice(&self.table.to_le_bytes());
        out[52..56].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crate::checksum::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header. The payload's length is known to be within bounds when this succeeds.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, WireError> {
        let magic = u32_at(bytes, 0);
        if magic != MAGIC {
            return Err(WireError::Magic { found: magic });
        }
        let (found, computed) = (u32_at(bytes, 60), crate::checksum::crc32c(&bytes[..60]));
        if found != computed {
            return Err(WireError::HeaderChecksum { found, computed });
        }
        let header = Self {
            op: Op::parse(bytes[4])?,
            flags: bytes[5],
            status: u16::from_le_bytes([bytes[6], bytes[7]]),
            id: u64_at(bytes, 8),
            generation: u64_at(bytes, 16),
            seq: u64_at(bytes, 24),
            offset: u64_at(bytes, 32),
            length: u32_at(bytes, 40),
            payload: u32_at(bytes, 44),
            table: u32_at(bytes, 48),
            payload_crc: u32_at(bytes, 52),
        };
        if header.payload > MAX_PAYLOAD {
            return Err(WireError::TooLarge { found: header.payload });
        }
        if u64::from(header.table) * 4 > u64::from(header.payload) {
            return Err(WireError::Field { op: header.op, field: "table" });
        }
        Ok(header)
    }
}

fn u32_at(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
