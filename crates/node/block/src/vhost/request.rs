//! Requests of a guest, as they lie in its memory: a header, data, and a byte for the result.

use bytes::{Bytes, BytesMut};
use vm_memory::{Bytes as _, GuestAddress};

use super::Memory;
use super::config::MAX_ZERO;

/// More than this in one request is a guest gone mad.
const MAX_BYTES: usize = 32 << 20;

const SECTOR: u64 = 512;
const HEADER: usize = 16;
/// Size of the range descriptor of discards and write-zeroes.
const RANGE: usize = 16;

/// The name of the disk, for guests that ask.
const SERIAL: &[u8; 20] = b"sheaf\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Type of a guest's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
    },
    Flush,
    Discard {
        offset: u64,
        length: u64,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
    },
    /// The name of the disk.
    Name,
    /// Something that a disk does not do.
    Unsupported,
    /// It makes no sense.
    Bad,
}

/// Where an answer goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Pieces of the guest's memory.
    pieces: Vec<(GuestAddress, u32)>,
    status: GuestAddress,
}

/// How a request ended, as virtio says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// A request that cannot even be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("a request of the guest is not in its memory")]
    Outside,
    #[error("a request of the guest has no end")]
    Endless,
    #[error("a request of the guest has no room for its result")]
    NoRoom,
}

/// Where descriptors are: so many from an address on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) at: u64,
    pub(crate) count: u16,
}

/// A piece of the guest's memory, as a descriptor names it.
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;

/// Takes a request out of the guest's memory.
pub(crate) fn take(memory: &Memory, table: Table, head: u16) -> Result<(Kind, Room), TakeError> {
    let mut readable = Vec::new();
    let mut writable = Vec::new();
    walk(memory, table, head, |piece| {
        let pieces = if piece.flags & WRITABLE > 0 { &mut writable } else { &mut readable };
        pieces.push((GuestAddress(piece.address), piece.length));
    })?;
    // The last byte that can be written is the result.
    let last = writable.iter_mut().rfind(|(_, length)| *length > 0).ok_or(TakeError::NoRoom)?;
    last.1 -= 1;
    let status = last.0.0.checked_add(u64::from(last.1)).ok_or(TakeError::NoRoom)?;
    let room = Room { pieces: writable, status: GuestAddress(status) };
    Ok((kind(memory, &readable, room.length()), room))
}

/// Follows a chain of descriptors, and the one table that it may lead to.
fn walk(
    memory: &Memory,
    mut table: Table,
    head: u16,
    mut visit: impl FnMut(&Descriptor),
) -> Result<(), TakeError> {
    let (mut at, mut nested) = (head, false);
    let mut left = table.count;
    loop {
        let descriptor = descriptor(memory, table, at).ok_or(TakeError::Outside)?;
        left = left.checked_sub(1).ok_or(TakeError::Endless)?;
        if descriptor.flags & INDIRECT > 0 {
            if std::mem::replace(&mut nested, true) {
                return Err(TakeError::Endless);
            }
            let count = u16::try_from(descriptor.length / 16).map_err(|_| TakeError::Endless)?;
            (table, at, left) = (Table { at: descriptor.address, count }, 0, count);
            continue;
        }
        visit(&descriptor);
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        at = descriptor.next;
    }
}

fn descriptor(memory: &Memory, table: Table, at: u16) -> Option<Descriptor> {
    let mut bytes = [0; 16];
    let address = table.at.checked_add(u64::from(at) * 16).filter(|_| at < table.count)?;
    memory.read_slice(&mut bytes, GuestAddress(address)).ok()?;
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (address, length) = (u64_at(&bytes, 0), u32_at(&bytes, 8));
    Some(Descriptor { address, length, flags: u16_at(12), next: u16_at(14) })
}

fn kind(memory: &Memory, readable: &[(GuestAddress, u32)], room: usize) -> Kind {
    let length: usize = readable.iter().map(|(_, length)| *length as usize).sum();
    if length < HEADER || length - HEADER > MAX_BYTES || room > MAX_BYTES {
        return Kind::Bad;
    }
    let mut all = BytesMut::zeroed(length);
    let mut at = 0;
    for (address, length) in readable {
        let length = *length as usize;
        if memory.read_slice(&mut all[at..at + length], *address).is_err() {
            return Kind::Bad;
        }
        at += length;
    }
    let header = all.split_to(HEADER);
    let data = all.freeze();
    let Some(offset) = u64_at(&header, 8).checked_mul(SECTOR) else { return Kind::Bad };
    let whole = |length: usize| (length as u64).is_multiple_of(SECTOR) && length > 0;
    match u32_at(&header, 0) {
        0 if whole(room) => Kind::Read { offset, length: room as u32 },
        1 if whole(data.len()) => Kind::Write { offset, data },
        0 | 1 => Kind::Bad,
        4 => Kind::Flush,
        8 => Kind::Name,
        11 => match range(&data) {
            Some((offset, length, _)) => Kind::Discard { offset, length },
            None => Kind::Bad,
        },
        13 => match range(&data) {
            Some((offset, length, unmap)) if !unmap || length > 0 => {
                Kind::WriteZeroes { offset, length }
            }
            _ => Kind::Bad,
        },
        _ => Kind::Unsupported,
    }
}

/// The range of a discard, and whether its space may be given back.
fn range(data: &[u8]) -> Option<(u64, u64, bool)> {
    if data.len() != RANGE {
        return None;
    }
    let offset = u64_at(data, 0).checked_mul(SECTOR)?;
    let length = u64::from(u32_at(data, 8)) * SECTOR;
    (length <= MAX_ZERO).then_some((offset, length, u32_at(data, 12) & 1 == 1))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Room {
    fn length(&self) -> usize {
        self.pieces.iter().map(|(_, length)| *length as usize).sum()
    }

    /// Puts an answer into the guest's memory, and says how much of that was written.
    pub(crate) fn put(&self, memory: &Memory, data: &[u8], status: Status) -> u32 {
        let mut status = status;
        let mut left = data;
        for (address, length) in &self.pieces {
            let (these, rest) = left.split_at(left.len().min(*length as usize));
            if memory.write_slice(these, *address).is_err() {
                status = Status::IoError;
                break;
            }
            left = rest;
        }
        // Memory that went away has no reader of the status.
        let _ = memory.write_obj(status as u8, self.status);
        (data.len() - left.len()) as u32 + 1
    }

    pub(crate) fn put_name(&self, memory: &Memory) -> u32 {
        let length = SERIAL.len().min(self.length());
        self.put(memory, &SERIAL[..length], Status::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table { at: 0, count: 8 };

    fn memory() -> Memory {
        Memory::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap()
    }

    /// Puts descriptors at the beginning of the memory.
    fn describe(memory: &Memory, at: u64, descriptors: &[(u64, u32, u16, u16)]) {
        for (index, (address, length, flags, next)) in descriptors.iter().enumerate() {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(length.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            memory.write_slice(&bytes, GuestAddress(at + index as u64 * 16)).unwrap();
        }
    }

    fn header(memory: &Memory, kind: u32, sector: u64) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(sector.to_le_bytes());
        memory.write_slice(&bytes, GuestAddress(0x1000)).unwrap();
    }

    #[test]
    fn a_write_is_copied_and_a_read_finds_its_room() {
        let memory = memory();
        describe(
            &memory,
            0,
            &[(0x1000, 16, NEXT, 1), (0x2000, 512, NEXT, 2), (0x3000, 1, WRITABLE, 0)],
        );
        memory.write_slice(&[7; 512], GuestAddress(0x2000)).unwrap();
        header(&memory, 1, 9);
        let (kind, room) = take(&memory, TABLE, 0).unwrap();
        assert_eq!(kind, Kind::Write { offset: 9 * 512, data: vec![7; 512].into() });
        assert_eq!(room.put(&memory, &[], Status::IoError), 1);
        assert_eq!(memory.read_obj::<u8>(GuestAddress(0x3000)).unwrap(), 1);

        // The same through a table of its own, its room in two pieces.
        describe(&memory, 0, &[(0x800, 48, INDIRECT, 0)]);
        let pieces = [(0x1000, 16, NEXT, 1), (0x4000, 256, NEXT | WRITABLE, 2)];
        describe(&memory, 0x800, &pieces);
        describe(&memory, 0x820, &[(0x5000, 257, WRITABLE, 0)]);
        header(&memory, 0, 2);
        let (kind, room) = take(&memory, TABLE, 0).unwrap();
        assert_eq!(kind, Kind::Read { offset: 1024, length: 512 });
        assert_eq!(room.put(&memory, &[3; 512], Status::Ok), 513);
        assert_eq!(memory.read_obj::<u8>(GuestAddress(0x50ff)).unwrap(), 3);
        assert_eq!(memory.read_obj::<u8>(GuestAddress(0x5100)).unwrap(), 0);
    }

    #[test]
    fn invalid_requests_are_reported_or_refused() {
        let memory = memory();
        for (descriptors, error) in [
            (&[(0x1000u64, 16u32, NEXT, 1u16), (0x1000, 16, NEXT, 0)][..], TakeError::Endless),
            (&[(0x1000, 16, NEXT, 9)], TakeError::Outside),
            (&[(0x1000, 16, 0, 0)], TakeError::NoRoom),
            (&[(0x1000, 0, WRITABLE, 0)], TakeError::NoRoom),
            (&[(u64::MAX, 64, INDIRECT, 0)], TakeError::Outside),
            (&[(0, 64, INDIRECT, 0)], TakeError::Endless),
        ] {
            describe(&memory, 0, descriptors);
            assert_eq!(take(&memory, TABLE, 0).unwrap_err(), error, "{descriptors:?}");
        }
        let status = (0x3000, 1, WRITABLE, 0);
        for (kind, sector, data, length) in [
            (1, 0, 0x2000, 100),
            (1, u64::MAX, 0x2000, 512),
            (1, 0, 1 << 40, 512),
            (11, 0, 0x2000, 12),
            (13, 0, 0x2000, 32),
        ] {
            describe(&memory, 0, &[(0x1000, 16, NEXT, 1), (data, length, NEXT, 2), status]);
            header(&memory, kind, sector);
            assert_eq!(take(&memory, TABLE, 0).unwrap().0, Kind::Bad, "{kind} {sector} {length}");
        }
        describe(&memory, 0, &[(0x1000, 16, NEXT, 1), status]);
        header(&memory, 99, 0);
        assert_eq!(take(&memory, TABLE, 0).unwrap().0, Kind::Unsupported);
    }
}
