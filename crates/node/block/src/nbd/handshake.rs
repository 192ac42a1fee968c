//! From the greeting to the first request: which export, and the form of replies.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::proto::{self, export_flag, handshake_flag, info, option, rep};

/// Options carry names and contexts, never data.
const MAX_OPTION: u32 = 64 * 1024;
/// Blocks that the engine works in, and what it likes and takes at once.
const BLOCK: u32 = 4096;
const PREFERRED: u32 = 4096;
const MAX_REQUEST: u32 = super::MAX_PAYLOAD;

/// A volume that clients may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The empty name opens the only export, as most tools do.
    pub name: String,
    pub size: u64,
    pub read_only: bool,
}

impl Export {
    fn flags(&self) -> u16 {
        use export_flag as flag;
        let common = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::DF | flag::MULTI_CONN;
        if self.read_only {
            return common | flag::READ_ONLY;
        }
        common | flag::TRIM | flag::WRITE_ZEROES | flag::FAST_ZERO
    }
}

/// The result of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    pub structured: bool,
    /// The client wants `base:allocation`.
    pub block_status: bool,
    pub read_only: bool,
    pub size: u64,
}

/// The state of the handshake after what has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandshakeStep {
    NeedMore,
    Go(Negotiated),
    /// The client has said farewell.
    End,
}

/// A client that does not speak the protocol; the connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("the client does not speak fixed newstyle NBD (flags {0:#x})")]
    ClientFlags(u32),
    #[error("an option begins with {0:#x} instead of the magic number")]
    Magic(u64),
    #[error("the client asked for export {0:?}, which is not served")]
    UnknownExport(String),
    #[error("option {option} of {length} bytes is longer than {MAX_OPTION}")]
    TooLong { option: u32, length: u32 },
}

/// The server's side of the handshake.
#[derive(Debug)]
pub struct Handshake {
    export: Export,
    flagged: bool,
    no_zeroes: bool,
    structured: bool,
    block_status: bool,
}

impl Handshake {
    /// Begins, with the greeting to send first.
    pub fn begin(export: Export, out: &mut BytesMut) -> Self {
        out.put_u64(proto::GREETING);
        out.put_u64(proto::OPTION_MAGIC);
        out.put_u16(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        Self { export, flagged: false, no_zeroes: false, structured: false, block_status: false }
    }

    /// Takes what it can of `input`; answers go to `out`.
    pub fn on(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<HandshakeStep, HandshakeError> {
        if !self.flagged {
            if input.len() < 4 {
                return Ok(HandshakeStep::NeedMore);
            }
            let flags = input.get_u32();
            let known =
                u32::from(handshake_flag::FIXED_NEWSTYLE) | u32::from(handshake_flag::NO_ZEROES);
            if flags & !known != 0 || flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
                return Err(HandshakeError::ClientFlags(flags));
            }
            self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
            self.flagged = true;
        }
        while let Some((number, data)) = next_option(input)? {
            match self.option(number, data, out)? {
                HandshakeStep::NeedMore => {}
                step => return Ok(step),
            }
        }
        Ok(HandshakeStep::NeedMore)
    }

    fn option(
        &mut self,
        number: u32,
        data: Bytes,
        out: &mut BytesMut,
    ) -> Result<HandshakeStep, HandshakeError> {
        match number {
            option::EXPORT_NAME => return self.export_name(&data, out),
            option::ABORT => {
                answer(out, number, rep::ACK, &[]);
                return Ok(HandshakeStep::End);
            }
            option::LIST if data.is_empty() => {
                let name = self.export.name.as_bytes();
                let mut entry = BytesMut::with_capacity(4 + name.len());
                entry.put_u32(length(name));
                entry.put_slice(name);
                answer(out, number, rep::SERVER, &entry);
                answer(out, number, rep::ACK, &[]);
            }
            option::INFO | option::GO => return Ok(self.info(number, data, out)),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(out, number, rep::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, out)
            }
            option::LIST | option::STRUCTURED_REPLY => {
                refuse(out, number, rep::INVALID, "this option carries no data");
            }
            _ => refuse(out, number, rep::UNSUPPORTED, "this option is not supported"),
        }
        Ok(HandshakeStep::NeedMore)
    }

    fn serves(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    fn negotiated(&self) -> Negotiated {
        Negotiated {
            structured: self.structured,
            block_status: self.block_status,
            read_only: self.export.read_only,
            size: self.export.size,
        }
    }

    /// The oldest way to open an export: it cannot be refused, only disconnected.
    fn export_name(
        &self,
        name: &[u8],
        out: &mut BytesMut,
    ) -> Result<HandshakeStep, HandshakeError> {
        if !self.serves(name) {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(HandshakeError::UnknownExport(name));
        }
        out.put_u64(self.export.size);
        out.put_u16(self.export.flags());
        if !self.no_zeroes {
            out.put_bytes(0, 124);
        }
        Ok(HandshakeStep::Go(self.negotiated()))
    }

    fn info(&self, number: u32, mut data: Bytes, out: &mut BytesMut) -> HandshakeStep {
        let Some((name, wanted)) = read_info(&mut data) else {
            refuse(out, number, rep::INVALID, "the option is malformed");
            return HandshakeStep::NeedMore;
        };
        if !self.serves(&name) {
            refuse(out, number, rep::UNKNOWN, "there is no such export");
            return HandshakeStep::NeedMore;
        }
        let mut entry = BytesMut::with_capacity(16);
        entry.put_u16(info::EXPORT);
        entry.put_u64(self.export.size);
        entry.put_u16(self.export.flags());
        answer(out, number, rep::INFO, &entry);
        if wanted.contains(&info::NAME) {
            let mut entry = BytesMut::new();
            entry.put_u16(info::NAME);
            entry.put_slice(self.export.name.as_bytes());
            answer(out, number, rep::INFO, &entry);
        }
        // Sent unasked as well: clients that do not check it ignore it.
        let mut entry = BytesMut::with_capacity(14);
        entry.put_u16(info::BLOCK_SIZE);
        let smallest = if wanted.contains(&info::BLOCK_SIZE) { BLOCK } else { 1 };
        entry.put_u32(smallest.min(512));
        entry.put_u32(PREFERRED);
        entry.put_u32(MAX_REQUEST);
        answer(out, number, rep::INFO, &entry);
        answer(out, number, rep::ACK, &[]);
        if number == option::GO {
            HandshakeStep::Go(self.negotiated())
        } else {
            HandshakeStep::NeedMore
        }
    }

    fn contexts(&mut self, number: u32, mut data: Bytes, out: &mut BytesMut) {
        let Some((name, queries)) = read_contexts(&mut data) else {
            refuse(out, number, rep::INVALID, "the option is malformed");
            return;
        };
        let setting = number == option::SET_META_CONTEXT;
        if setting && !self.structured {
            refuse(out, number, rep::INVALID, "contexts need structured replies");
            return;
        }
        if !self.serves(&name) {
            refuse(out, number, rep::UNKNOWN, "there is no such export");
            return;
        }
        let all = !setting && queries.is_empty();
        let matches = |query: &Bytes| {
            query == proto::ALLOCATION.as_bytes() || (!setting && &query[..] == b"base:")
        };
        let found = all || queries.iter().any(matches);
        if setting {
            self.block_status = found;
        }
        if found {
            let mut entry = BytesMut::with_capacity(24);
            entry.put_u32(if setting { proto::ALLOCATION_ID } else { 0 });
            entry.put_slice(proto::ALLOCATION.as_bytes());
            answer(out, number, rep::META_CONTEXT, &entry);
        }
        answer(out, number, rep::ACK, &[]);
    }
}

/// The next whole option, if it has arrived.
fn next_option(input: &mut BytesMut) -> Result<Option<(u32, Bytes)>, HandshakeError> {
    if input.len() < 16 {
        return Ok(None);
    }
    let mut head = &input[..16];
    let magic = head.get_u64();
    let (option, length) = (head.get_u32(), head.get_u32());
    if magic != proto::OPTION_MAGIC {
        return Err(HandshakeError::Magic(magic));
    }
    if length > MAX_OPTION {
        return Err(HandshakeError::TooLong { option, length });
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if input.len() < 16 + length {
        return Ok(None);
    }
    input.advance(16);
    Ok(Some((option, input.split_to(length).freeze())))
}

/// Name and wanted kinds of an INFO or GO option.
fn read_info(data: &mut Bytes) -> Option<(Bytes, Vec<u16>)> {
    let name = read_string(data)?;
    let count = usize::from(data.try_get_u16().ok()?);
    if data.len() != count * 2 {
        return None;
    }
    Some((name, (0..count).map(|_| data.get_u16()).collect()))
}

/// Export and queries of a meta context option.
fn read_contexts(data: &mut Bytes) -> Option<(Bytes, Vec<Bytes>)> {
    let name = read_string(data)?;
    let count = data.try_get_u32().ok()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(read_string(data)?);
    }
    data.is_empty().then_some((name, queries))
}

fn read_string(data: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(data.try_get_u32().ok()?).ok()?;
    (length <= data.len()).then(|| data.split_to(length))
}

fn answer(out: &mut BytesMut, option: u32, kind: u32, data: &[u8]) {
    out.put_u64(proto::OPTION_REPLY);
    out.put_u32(option);
    out.put_u32(kind);
    out.put_u32(length(data));
    out.put_slice(data);
}

fn refuse(out: &mut BytesMut, option: u32, kind: u32, why: &str) {
    answer(out, option, kind, why.as_bytes());
}

fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("what is answered is short")
}
