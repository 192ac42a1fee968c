//! Numbers of the protocol, in network byte order on the wire.

pub(super) const GREETING: u64 = 0x4e42_444d_4147_4943; // NBDMAGIC
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY: u32 = 0x668e_33ef;

pub(super) mod handshake_flag {
    pub(in super::super) const FIXED_NEWSTYLE: u16 = 1;
    pub(in super::super) const NO_ZEROES: u16 = 2;
}

pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const LIST_META_CONTEXT: u32 = 9;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
}

/// Types of answers to options.
pub(super) mod rep {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(in super::super) const UNSUPPORTED: u32 = ERROR | 1;
    pub(in super::super) const INVALID: u32 = ERROR | 3;
    pub(in super::super) const UNKNOWN: u32 = ERROR | 6;
}

pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const NAME: u16 = 1;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

/// Features of an export.
pub(super) mod export_flag {
    pub(in super::super) const HAS_FLAGS: u16 = 1;
    pub(in super::super) const READ_ONLY: u16 = 1 << 1;
    pub(in super::super) const FLUSH: u16 = 1 << 2;
    pub(in super::super) const FUA: u16 = 1 << 3;
    pub(in super::super) const TRIM: u16 = 1 << 5;
    pub(in super::super) const WRITE_ZEROES: u16 = 1 << 6;
    pub(in super::super) const DF: u16 = 1 << 7;
    pub(in super::super) const MULTI_CONN: u16 = 1 << 8;
    pub(in super::super) const FAST_ZERO: u16 = 1 << 11;
}

pub(super) mod command {
    pub(in super::super) const READ: u16 = 0;
    pub(in super::super) const WRITE: u16 = 1;
    pub(in super::super) const DISCONNECT: u16 = 2;
    pub(in super::super) const FLUSH: u16 = 3;
    pub(in super::super) const TRIM: u16 = 4;
    pub(in super::super) const WRITE_ZEROES: u16 = 6;
    pub(in super::super) const BLOCK_STATUS: u16 = 7;
}

pub(super) mod command_flag {
    pub(in super::super) const FUA: u16 = 1;
    pub(in super::super) const NO_HOLE: u16 = 1 << 1;
    pub(in super::super) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(in super::super) const ONE_EXTENT: u16 = 1 << 3;
    pub(in super::super) const FAST_ZERO: u16 = 1 << 4;
}

pub(super) mod chunk {
    pub(in super::super) const DONE: u16 = 1;
    pub(in super::super) const NONE: u16 = 0;
    pub(in super::super) const OFFSET_DATA: u16 = 1;
    pub(in super::super) const BLOCK_STATUS: u16 = 5;
    pub(in super::super) const ERROR: u16 = (1 << 15) | 1;
}

/// Flags of an extent in the context `base:allocation`.
pub(super) mod extent_flag {
    pub(in super::super) const HOLE: u32 = 1;
    pub(in super::super) const ZERO: u32 = 2;
}

/// The only context that is offered, and the number it gets.
pub(super) const ALLOCATION: &str = "base:allocation";
pub(super) const ALLOCATION_ID: u32 = 1;
