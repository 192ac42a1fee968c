//! Between messages and frames. Payloads are never copied: a frame goes out as a small head
//! (header and table of checksums) and the data as it came.

use bytes::{BufMut, Bytes, BytesMut};

use super::header::flag;
use super::{
    Answer, BLOCK, Call, Crcs, Frame, HEADER, Header, MAX_DATA, Op, Refusal, Reply, Request,
    Verify, WireError, payload,
};
use crate::ids::{Epoch, Generation, Seq};

/// A frame ready to be sent: write `head`, then `body`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    pub head: Bytes,
    pub body: Bytes,
}

impl Encoded {
    fn new(mut header: Header, table: &[u32], body: Bytes) -> Self {
        header.table = u32::try_from(table.len()).expect("data is shorter than MAX_DATA");
        header.payload =
            u32::try_from(table.len() * 4 + body.len()).expect("payloads are within MAX_PAYLOAD");
        let mut head = BytesMut::with_capacity(HEADER + table.len() * 4);
        head.put_bytes(0, HEADER);
        table.iter().for_each(|crc| head.put_u32_le(*crc));
        header.payload_crc =
            crate::checksum::crc32c(if table.is_empty() { &body } else { &head[HEADER..] });
        head[..HEADER].copy_from_slice(&header.encode());
        Self { head: head.freeze(), body }
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The frame of a call.
pub fn encode_call(call: &Call) -> Encoded {
    let mut header = Header::new(call.request.op());
    header.id = call.id;
    header.generation = call.generation.0;
    header.seq = call.seq.0;
    if let Some((offset, length)) = call.request.range() {
        header.offset = offset;
        header.length = u32::try_from(length).expect("ranges are within MAX_DATA");
    }
    let none = Bytes::new();
    match &call.request {
        Request::Hello(hello) => Encoded::new(header, &[], payload::document(hello)),
        Request::Open(open) => Encoded::new(header, &[], payload::document(open)),
        Request::Write { data, crcs, fua, .. } | Request::Copy { data, crcs, fua, .. } => {
            header.flags |= if *fua { flag::FUA } else { 0 };
            Encoded::new(header, crcs.as_slice(), data.clone())
        }
        Request::Repair { snapshot, data, crcs, .. } => {
            Encoded::new(header, &[], payload::repair(*snapshot, crcs, data))
        }
        Request::Read { view, .. } => {
            header.flags |= if view.is_some() { flag::VIEW } else { 0 };
            Encoded::new(header, &[], payload::view(*view))
        }
        Request::ReadMap { view, verify, .. } => {
            header.flags |= if view.is_some() { flag::VIEW } else { 0 };
            header.flags |= match verify {
                Verify::Suspect => 0,
                Verify::Deep => flag::DEEP,
                Verify::Adopt => flag::ADOPT,
                Verify::Compare(_) => flag::KEYED,
            };
            Encoded::new(header, &[], payload::view_and_key(*view, *verify))
        }
        Request::Flush { settle, number, complete } => {
            // As a distance, since flushes are numbered with more bits than a length has.
            header.offset = *number;
            header.length = u32::try_from(number.saturating_sub(*complete)).unwrap_or(u32::MAX);
            Encoded::new(header, &[], payload::numbers(settle))
        }
        Request::WriteZeroes { fua, .. } => {
            header.flags |= if *fua { flag::FUA } else { 0 };
            Encoded::new(header, &[], none)
        }
        Request::Snapshot(info) => Encoded::new(header, &[], payload::document(info)),
        Request::Revert { to } => {
            header.flags |= if to.is_some() { flag::VIEW } else { 0 };
            Encoded::new(header, &[], payload::view(*to))
        }
        Request::DeleteSnapshot { snapshot } => {
            Encoded::new(header, &[], payload::view(Some(*snapshot)))
        }
        Request::Resize { size } => {
            header.offset = *size;
            Encoded::new(header, &[], none)
        }
        Request::SetEpoch(epoch) => {
            header.offset = epoch.0;
            Encoded::new(header, &[], none)
        }
        Request::ScrubMetadata { alone, .. } => {
            header.flags |= if *alone { flag::ALONE } else { 0 };
            Encoded::new(header, &[], none)
        }
        Request::Discard { .. }
        | Request::Scrub { .. }
        | Request::Dirty
        | Request::Prepare
        | Request::Seal
        | Request::Ping
        | Request::Close
        | Request::Reconciled => Encoded::new(header, &[], none),
    }
}

/// The call in a frame.
pub fn decode_call(frame: Frame) -> Result<Call, WireError> {
    let Frame { header, payload: bytes } = frame;
    let op = header.op;
    if header.has(flag::ANSWER) {
        return Err(WireError::Direction { op });
    }
    let (offset, length, fua) = (header.offset, header.length, header.has(flag::FUA));
    let view = || match header.has(flag::VIEW) {
        true => payload::parse_snapshot(op, &bytes).map(Some),
        false => Ok(None),
    };
    let request = match op {
        Op::Hello => Request::Hello(payload::parse(op, &bytes)?),
        Op::Open => Request::Open(payload::parse(op, &bytes)?),
        Op::Write | Op::Copy => {
            range(&header)?;
            let (crcs, data) = blocks(&header, bytes)?;
            if data.len() != length as usize {
                return Err(WireError::Field { op, field: "length" });
            }
            match op {
                Op::Write => Request::Write { offset, data, crcs, fua },
                _ => Request::Copy { offset, data, crcs, fua },
            }
        }
        Op::Repair => {
            range(&header)?;
            let (snapshot, crcs, data) = payload::parse_repair(op, length, bytes)?;
            Request::Repair { snapshot, offset, data, crcs }
        }
        Op::Scrub => {
            range(&header)?;
            Request::Scrub { offset, length }
        }
        Op::ScrubMetadata => {
            aligned(&header)?;
            Request::ScrubMetadata { offset, length, alone: header.has(flag::ALONE) }
        }
        Op::Read => {
            range(&header)?;
            Request::Read { view: view()?, offset, length }
        }
        Op::ReadMap => {
            range(&header)?;
            let (view, key) = payload::split_key(op, &bytes, header.has(flag::KEYED))?;
            let verify = match (key, header.has(flag::DEEP), header.has(flag::ADOPT)) {
                (Some(key), _, _) => Verify::Compare(key),
                (None, _, true) => Verify::Adopt,
                (None, true, false) => Verify::Deep,
                (None, false, false) => Verify::Suspect,
            };
            let view = match header.has(flag::VIEW) {
                true => Some(payload::parse_snapshot(op, view)?),
                false => None,
            };
            Request::ReadMap { view, offset, length, verify }
        }
        Op::Flush => Request::Flush {
            settle: payload::parse_numbers(op, &bytes)?,
            number: offset,
            complete: offset.saturating_sub(u64::from(length)),
        },
        Op::Discard | Op::WriteZeroes => {
            aligned(&header)?;
            match op {
                Op::Discard => Request::Discard { offset, length },
                _ => Request::WriteZeroes { offset, length, fua },
            }
        }
        Op::Snapshot => Request::Snapshot(payload::parse(op, &bytes)?),
        Op::Revert => Request::Revert { to: view()? },
        Op::DeleteSnapshot => {
            Request::DeleteSnapshot { snapshot: payload::parse_snapshot(op, &bytes)? }
        }
        Op::Resize => Request::Resize { size: offset },
        Op::SetEpoch => Request::SetEpoch(Epoch(offset)),
        Op::Dirty => Request::Dirty,
        Op::Prepare => Request::Prepare,
        Op::Seal => Request::Seal,
        Op::Ping => Request::Ping,
        Op::Close => Request::Close,
        Op::Reconciled => Request::Reconciled,
    };
    Ok(Call {
        id: header.id,
        generation: Generation(header.generation),
        seq: Seq(header.seq),
        request,
    })
}

/// The frame of an answer to a call of operation `op`.
pub fn encode_answer(op: Op, answer: &Answer) -> Encoded {
    let mut header = Header::new(op);
    header.flags = flag::ANSWER;
    header.id = answer.id;
    header.generation = answer.generation.0;
    match &answer.result {
        Err(refusal) => {
            header.status = status(*refusal);
            Encoded::new(header, &[], Bytes::new())
        }
        Ok(Reply::Hello(hello)) => Encoded::new(header, &[], payload::document(hello)),
        Ok(Reply::Opened(opened)) => Encoded::new(header, &[], payload::document(opened)),
        Ok(Reply::Done) => Encoded::new(header, &[], Bytes::new()),
        Ok(Reply::Data { data, crcs }) => Encoded::new(header, crcs.as_slice(), data.clone()),
        Ok(Reply::Map(blocks)) => {
            header.length = u32::try_from(blocks.len()).expect("a map is of one range");
            Encoded::new(header, &[], payload::map(blocks))
        }
        Ok(Reply::Dirty(regions)) => Encoded::new(header, &[], payload::numbers(regions)),
        Ok(Reply::Damage(blocks)) => Encoded::new(header, &[], payload::damage(blocks)),
        Ok(Reply::Pong(pong)) => Encoded::new(header, &[], payload::document(pong)),
        Ok(Reply::Metadata(report)) => Encoded::new(header, &[], payload::document(report)),
    }
}

/// The answer in a frame.
pub fn decode_answer(frame: Frame) -> Result<Answer, WireError> {
    let Frame { header, payload: bytes } = frame;
    let op = header.op;
    if !header.has(flag::ANSWER) {
        return Err(WireError::Direction { op });
    }
    let result = match header.status {
        0 => Ok(match op {
            Op::Hello => Reply::Hello(payload::parse(op, &bytes)?),
            Op::Open => Reply::Opened(payload::parse(op, &bytes)?),
            Op::Read => {
                let (crcs, data) = blocks(&header, bytes)?;
                Reply::Data { data, crcs }
            }
            Op::ReadMap => Reply::Map(payload::parse_map(op, header.length as usize, &bytes)?),
            Op::Dirty => Reply::Dirty(payload::parse_numbers(op, &bytes)?),
            Op::Scrub => Reply::Damage(payload::parse_damage(op, &bytes)?),
            Op::Ping => Reply::Pong(payload::parse(op, &bytes)?),
            Op::ScrubMetadata => Reply::Metadata(payload::parse(op, &bytes)?),
            _ => Reply::Done,
        }),
        code => Err(refusal(code)?),
    };
    Ok(Answer { id: header.id, generation: Generation(header.generation), result })
}

/// A range of whole blocks that fits into one frame.
fn range(header: &Header) -> Result<(), WireError> {
    aligned(header)?;
    match header.length {
        1..=MAX_DATA => Ok(()),
        _ => Err(WireError::Field { op: header.op, field: "length" }),
    }
}

fn aligned(header: &Header) -> Result<(), WireError> {
    let op = header.op;
    if !header.offset.is_multiple_of(BLOCK)
        || header.offset.checked_add(u64::from(header.length)).is_none()
    {
        return Err(WireError::Field { op, field: "offset" });
    }
    match u64::from(header.length) % BLOCK {
        0 if header.length > 0 => Ok(()),
        _ => Err(WireError::Field { op, field: "length" }),
    }
}

/// Splits a payload into its table of checksums and its blocks.
fn blocks(header: &Header, mut bytes: Bytes) -> Result<(Crcs, Bytes), WireError> {
    let table = bytes.split_to(header.table as usize * 4);
    let whole = bytes.len() as u64 == u64::from(header.table) * BLOCK;
    if !whole || bytes.is_empty() || bytes.len() > MAX_DATA as usize {
        return Err(WireError::Field { op: header.op, field: "table" });
    }
    let crcs = table.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok((crcs.collect(), bytes))
}

const REFUSALS: [(u16, Refusal); 12] = [
    (1, Refusal::Fenced),
    (2, Refusal::NotOpen),
    (3, Refusal::ReadOnly),
    (4, Refusal::Version),
    (5, Refusal::WrongReplica),
    (6, Refusal::BadChecksum),
    (7, Refusal::NoSpace),
    (8, Refusal::Io),
    (9, Refusal::Invalid),
    (10, Refusal::NoSnapshot),
    (11, Refusal::Busy),
    (12, Refusal::NotGranted),
];

fn status(refusal: Refusal) -> u16 {
    let found = REFUSALS.iter().find(|(_, known)| *known == refusal);
    found.expect("every refusal has a number").0
}

fn refusal(status: u16) -> Result<Refusal, WireError> {
    let found = REFUSALS.iter().find(|(code, _)| *code == status);
    found.map(|(_, refusal)| *refusal).ok_or(WireError::UnknownStatus(status))
}
