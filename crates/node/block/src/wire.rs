//! The protocol between engine and replica: frames of a 64-byte header and a payload.
//!
//! One connection per engine and replica. The engine sends [`Call`]s, the replica sends one
//! [`Answer`] for each, in any order. The first call is HELLO, the second OPEN; see
//! [`repl::session`](crate::repl::session) for what may follow.
//!
//! ```text
//!  0        4    5     6        8        16           24       32       40       44
//!  ├ magic ─┼ op ┼flags┼ status ┼── id ──┼ generation ┼─ seq ──┼ offset ┼ length ┤
//!  44        48      52             56          60            64
//!  ├ payload ┼ table ┼ payload_crc ─┼ reserved ──┼ header_crc ─┤ payload bytes …
//! ```
//!
//! All numbers are little-endian. `magic` is `SHB` and the version of the framing. `length` is
//! the length of the range of the volume that the call concerns, `payload` counts the bytes that
//! follow the header. `header_crc` is the crc32c of the sixty bytes before it.
//!
//! Blocks of data carry their own checksums: `table` says how many. The payload then begins
//! with a table of that many crc32c, one for each 4 KiB block, followed by the blocks.
//! `payload_crc` covers the table only, because the table covers the blocks: data is summed once,
//! by the engine, and checked where it is used, by the replica that stores it and by the engine
//! that reads it. Without a table `payload_crc` covers the whole payload.
//!
//! Owns the bytes. Refuses frames that are damaged, too large or not of this version, with an
//! error that says which; no input makes it panic or allocate more than [`MAX_PAYLOAD`].

mod codec;
mod crcs;
mod decoder;
mod header;
mod message;
mod metadata;
mod payload;
#[cfg(test)]
mod tests;

pub use crate::checksum::SumKey;
pub use codec::{Encoded, decode_answer, decode_call, encode_answer, encode_call};
pub use crcs::Crcs;
pub use decoder::{Decoder, Frame};
pub use header::{HEADER, Header, Op};
pub use message::{
    Answer, BlockState, Call, DamagedBlock, Hello, HelloReply, Mode, Open, Opened, Pong, Refusal,
    Reply, Request, SnapshotInfo, Verify, Witnessed, Work, WorkProgress,
};
pub use metadata::{MetadataDamage, MetadataReport};

use crate::ids::Generation;

/// The unit of checksums and of everything a replica stores.
pub const BLOCK: u64 = 4096;

/// The longest range that one call may read or write.
pub const MAX_DATA: u32 = 4 << 20;

/// The longest payload of a frame: data with its table, with room for the lists of a replica
/// that has many snapshots.
pub const MAX_PAYLOAD: u32 = MAX_DATA + (1 << 20);

/// The versions of the protocol that this build speaks, oldest and newest. Since version 2
/// replicas keep the marks of flushes; an older one ignores them. Since version 3 they check the
/// layers of snapshots for damage, and repair it. Since version 4 they verify their metadata on
/// disk.
pub const VERSIONS: (u16, u16) = (1, 4);

/// Why bytes are not a frame of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("not a frame of this protocol: it begins with {found:#010x}")]
    Magic { found: u32 },
    #[error("damaged header: checksum is {found:#010x}, computed {computed:#010x}")]
    HeaderChecksum { found: u32, computed: u32 },
    #[error("damaged payload: checksum is {found:#010x}, computed {computed:#010x}")]
    PayloadChecksum { found: u32, computed: u32 },
    #[error("unknown operation {0}")]
    UnknownOp(u8),
    #[error("unknown status {0}")]
    UnknownStatus(u16),
    #[error("payload of {found} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLarge { found: u32 },
    #[error("operation {op:?} does not go in this direction")]
    Direction { op: Op },
    #[error("{op:?}: bad field {field}")]
    Field { op: Op, field: &'static str },
    #[error("generation {found} in the answer to a call of generation {expected}")]
    Generation { found: Generation, expected: Generation },
}
