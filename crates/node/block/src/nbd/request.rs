//! Requests after the handshake.

use bytes::{Buf, Bytes, BytesMut};

use super::handshake::Negotiated;
use super::proto::{self, command, command_flag};
use super::reply::Errno;

/// The most that is read or written at once; QEMU and libnbd assume the same limit by default.
pub const MAX_PAYLOAD: u32 = 32 * 1024 * 1024;
const HEADER: usize = 28;

/// One request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it, which the reply carries.
    pub cookie: u64,
    pub kind: RequestKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        length: u32,
        fua: bool,
    },
    /// `keep`: the space stays allocated. `fast`: refuse rather than write zeroes out.
    WriteZeroes {
        offset: u64,
        length: u32,
        fua: bool,
        keep: bool,
        fast: bool,
    },
    BlockStatus {
        offset: u64,
        length: u32,
        one: bool,
    },
    /// No reply: the client is gone once what it asked for before is answered.
    Disconnect,
    /// Understood, and refused; the connection goes on.
    Bad(Errno),
}

/// A stream that can no longer be followed; the connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("a request begins with {0:#x} instead of the magic number")]
    Magic(u32),
    #[error("a write of {0} bytes is longer than {MAX_PAYLOAD}")]
    TooLong(u32),
}

/// Cuts the stream into requests.
#[derive(Debug)]
pub struct Requests {
    negotiated: Negotiated,
}

impl Requests {
    pub fn new(negotiated: Negotiated) -> Self {
        Self { negotiated }
    }

    /// After the volume has grown.
    pub fn resize(&mut self, size: u64) {
        self.negotiated.size = size;
    }

    /// How many more bytes a whole request needs; a hint for reading.
    pub fn missing(input: &[u8]) -> usize {
        if input.len() < HEADER {
            return HEADER - input.len();
        }
        let mut head = input;
        head.advance(6);
        let kind = head.get_u16();
        head.advance(16);
        let payload = if kind == command::WRITE { head.get_u32().min(MAX_PAYLOAD) } else { 0 };
        (HEADER + payload as usize).saturating_sub(input.len())
    }

    /// The next whole request of `input`, if it has arrived.
    pub fn next(&self, input: &mut BytesMut) -> Result<Option<Request>, RequestError> {
        if input.len() < HEADER {
            return Ok(None);
        }
        let mut head = &input[..HEADER];
        let magic = head.get_u32();
        if magic != proto::REQUEST {
            return Err(RequestError::Magic(magic));
        }
        let (flags, kind) = (head.get_u16(), head.get_u16());
        let (cookie, offset, length) = (head.get_u64(), head.get_u64(), head.get_u32());
        let mut data = Bytes::new();
        if kind == command::WRITE {
            // Its data cannot be skipped without taking all of it in.
            if length > MAX_PAYLOAD {
                return Err(RequestError::TooLong(length));
            }
            let whole = HEADER + length as usize;
            if input.len() < whole {
                return Ok(None);
            }
            input.advance(HEADER);
            data = input.split_to(length as usize).freeze();
        } else {
            input.advance(HEADER);
        }
        let kind = match self.judge(kind, flags, offset, length) {
            Ok(()) => understood(kind, flags, offset, length, data),
            Err(errno) => RequestKind::Bad(errno),
        };
        Ok(Some(Request { cookie, kind }))
    }

    /// Whether a request makes sense for this export.
    fn judge(&self, kind: u16, flags: u16, offset: u64, length: u32) -> Result<(), Errno> {
        use command_flag as flag;
        let allowed = match kind {
            command::READ => flag::DONT_FRAGMENT,
            command::WRITE | command::TRIM => flag::FUA,
            command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::ONE_EXTENT,
            command::FLUSH => flag::FUA,
            command::DISCONNECT => return Ok(()),
            _ => return Err(Errno::Invalid),
        };
        if flags & !allowed != 0 {
            return Err(Errno::Invalid);
        }
        if kind == command::FLUSH {
            return Ok(());
        }
        let changes = matches!(kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if changes && self.negotiated.read_only {
            return Err(Errno::NotPermitted);
        }
        if kind == command::BLOCK_STATUS && (!self.negotiated.block_status || length == 0) {
            return Err(Errno::Invalid);
        }
        let inside =
            offset.checked_add(u64::from(length)).is_some_and(|end| end <= self.negotiated.size);
        match (inside, kind) {
            (true, command::READ) if length > MAX_PAYLOAD => Err(Errno::Overflow),
            (true, _) => Ok(()),
            (false, command::WRITE | command::WRITE_ZEROES) => Err(Errno::NoSpace),
            (false, _) => Err(Errno::Invalid),
        }
    }
}

/// A request that was judged good.
fn understood(kind: u16, flags: u16, offset: u64, length: u32, data: Bytes) -> RequestKind {
    let has = |flag: u16| flags & flag != 0;
    let fua = has(command_flag::FUA);
    match kind {
        command::READ => RequestKind::Read { offset, length },
        command::WRITE => RequestKind::Write { offset, data, fua },
        command::FLUSH => RequestKind::Flush,
        command::TRIM => RequestKind::Trim { offset, length, fua },
        command::WRITE_ZEROES => RequestKind::WriteZeroes {
            offset,
            length,
            fua,
            keep: has(command_flag::NO_HOLE),
            fast: has(command_flag::FAST_ZERO),
        },
        command::BLOCK_STATUS => {
            RequestKind::BlockStatus { offset, length, one: has(command_flag::ONE_EXTENT) }
        }
        _ => RequestKind::Disconnect,
    }
}
