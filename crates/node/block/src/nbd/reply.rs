//! Replies: a head, and payload that is sent from where it is.

use bytes::{BufMut, Bytes, BytesMut};

use super::handshake::Negotiated;
use super::proto::{self, chunk, extent_flag};

/// Errors that a client can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    NotPermitted = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    ShuttingDown = 108,
}

impl Errno {
    fn text(self) -> &'static str {
        match self {
            Self::NotPermitted => "the export is read-only",
            Self::Io => "the volume cannot be read or written",
            Self::NoMemory => "too many requests at once",
            Self::Invalid => "the request makes no sense for this export",
            Self::NoSpace => "there is no space left",
            Self::Overflow => "the request is too long",
            Self::NotSupported => "this cannot be done fast",
            Self::ShuttingDown => "the export is being closed",
        }
    }
}

/// A run of blocks that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub length: u32,
    /// Nothing is stored for it, and it reads as zeroes.
    pub hole: bool,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    Data { offset: u64, data: Bytes },
    Extents(Vec<Extent>),
    Failed(Errno),
}

/// Writes replies in the form that was agreed on.
#[derive(Debug, Clone, Copy)]
pub struct Replies {
    structured: bool,
}

impl Replies {
    pub fn new(negotiated: &Negotiated) -> Self {
        Self { structured: negotiated.structured }
    }

    /// Puts the head into `out`; the returned bytes are sent right after it.
    pub fn put(&self, cookie: u64, reply: Reply, out: &mut BytesMut) -> Option<Bytes> {
        if !self.structured {
            return simple(cookie, reply, out);
        }
        match reply {
            Reply::Done => head(out, chunk::NONE, cookie, 0),
            Reply::Data { offset, data } => {
                head(out, chunk::OFFSET_DATA, cookie, 8 + data.len());
                out.put_u64(offset);
                return Some(data);
            }
            Reply::Extents(extents) => {
                head(out, chunk::BLOCK_STATUS, cookie, 4 + 8 * extents.len());
                out.put_u32(proto::ALLOCATION_ID);
                for extent in extents {
                    out.put_u32(extent.length);
                    let flags = extent_flag::HOLE | extent_flag::ZERO;
                    out.put_u32(if extent.hole { flags } else { 0 });
                }
            }
            Reply::Failed(errno) => {
                let text = errno.text();
                head(out, chunk::ERROR, cookie, 6 + text.len());
                out.put_u32(errno as u32);
                out.put_u16(u16::try_from(text.len()).expect("texts are short"));
                out.put_slice(text.as_bytes());
            }
        }
        None
    }
}

fn head(out: &mut BytesMut, kind: u16, cookie: u64, length: usize) {
    out.put_u32(proto::STRUCTURED_REPLY);
    out.put_u16(chunk::DONE);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(u32::try_from(length).expect("no reply is longer than a request may ask for"));
}

fn simple(cookie: u64, reply: Reply, out: &mut BytesMut) -> Option<Bytes> {
    let (error, data) = match reply {
        Reply::Done => (0, None),
        Reply::Data { data, .. } => (0, Some(data)),
        // Not asked for without structured replies; a client that does gets an error.
        Reply::Extents(_) => (Errno::Invalid as u32, None),
        Reply::Failed(errno) => (errno as u32, None),
    };
    out.put_u32(proto::SIMPLE_REPLY);
    out.put_u32(error);
    out.put_u64(cookie);
    data
}
