//! One page of an index, as it is on disk.

use super::{Entry, PAGE, REGIONS};
use crate::checksum::crc32c_of_page;
use crate::store::bytes_at::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::store::crc::crc32c;
use crate::store::files::FileNo;

const MAGIC: u32 = u32::from_le_bytes(*b"SIDX");
const VERSION: u16 = 1;
const ENTRIES: usize = 64;
const ENTRY: usize = 10;

/// Entries of a page, by the position of the region in it.
pub(super) type Entries = Vec<(u16, Entry)>;

/// A page as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexPage {
    pub(super) seq: u64,
    pub(super) clean: u64,
    pub(super) entries: Entries,
}

/// The layer and page number that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tag: u64,
    pub(super) file: FileNo,
    pub(super) page: u32,
}

pub(super) fn encode(owner: Owner, page: &IndexPage) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    put_u32(&mut bytes, 0, MAGIC);
    put_u64(&mut bytes, 8, page.seq);
    put_u32(&mut bytes, 16, owner.file.0);
    put_u32(&mut bytes, 20, owner.page);
    put_u64(&mut bytes, 24, owner.tag);
    put_u16(&mut bytes, 32, VERSION);
    put_u64(&mut bytes, 40, page.clean);
    for (at, entry) in &page.entries {
        let at = ENTRIES + usize::from(*at) * ENTRY;
        put_u32(&mut bytes, at, entry.seq);
        put_u32(&mut bytes, at + 4, entry.crc);
        put_u16(&mut bytes, at + 8, entry.blocks);
    }
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, 4, crc);
    bytes
}

/// The content of one slot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slot {
    Blank,
    Valid(IndexPage),
    Invalid,
}

pub(super) fn decode(bytes: &[u8], owner: Owner) -> Slot {
    if bytes.iter().all(|byte| *byte == 0) {
        return Slot::Blank;
    }
    let ours = get_u32(bytes, 0) == MAGIC
        && crc32c_of_page(bytes) == get_u32(bytes, 4)
        && get_u16(bytes, 32) == VERSION
        && get_u32(bytes, 16) == owner.file.0
        && get_u32(bytes, 20) == owner.page
        && get_u64(bytes, 24) == owner.tag
        && get_u64(bytes, 8) > 0;
    if !ours {
        return Slot::Invalid;
    }
    let entry = |at: u16| {
        let from = ENTRIES + usize::from(at) * ENTRY;
        let (seq, crc) = (get_u32(bytes, from), get_u32(bytes, from + 4));
        let blocks = get_u16(bytes, from + 8);
        (seq > 0).then_some((at, Entry { seq, crc, blocks }))
    };
    let entries = (0..REGIONS as u16).filter_map(entry).collect();
    Slot::Valid(IndexPage { seq: get_u64(bytes, 8), clean: get_u64(bytes, 40), entries })
}
