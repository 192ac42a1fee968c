//! The log: small changes of metadata, made durable together.
//!
//! The file `log` is a ring of 4 KiB pages, written in full when the replica is created, so that
//! making a page durable never needs the file system's journal. A *batch* is one or more pages
//! that are written together; the next batch is begun when the last one is durable. A page is
//! written once per turn of the ring, never rewritten with more records.
//!
//! Each page is there twice, side by side: a damaged last page would appear like one that a power
//! cut tore, and what it made durable would be lost without a sign.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SLOG` |
//! | 4 | 4 | CRC-32C of the page, with this field zero |
//! | 8 | 8 | sequence of the page; it is at position *sequence mod pages*, 8 KiB each |
//! | 16 | 8 | sequence of the first page of its batch |
//! | 24 | 8 | tail: replay begins at the page with this sequence |
//! | 32 | 8 | tag of the replica |
//! | 40 | 4 | checksum of the page before, so that leftovers of a torn batch do not join the chain |
//! | 44 | 2 | bytes of records |
//! | 46 | 2 | format version |
//! | 48 | … | records, each a kind and its fields |
//!
//! | kind | fields | meaning |
//! |---|---|---|
//! | 1 | region u32 | the region will be written: its checksums and those of peers may differ |
//! | 2 | region u32 | no longer |
//! | 3 | file u32, region u32, delta i16, data 64 B, zero 64 B | the blocks of the region that the layer has |
//! | 4 | work u32, cursor u32 | a checkpoint begins; first in its page |
//! | 5 | file u32, blocks u64 | of the checkpoint: blocks of data in the layer |
//! | 6 | work u32, region u32 | background work has done everything before the region |
//! | 16 | file u32, clean u64, digest u64 | the layer's index as of that clean: [`super::index`] |
//! | 17 | sequence u64 | the super block with this sequence is durable |
//! | 7 | four u64: generation and number of two flushes | the newest flush that was carried out here, and the newest that all replicas completed |
//!
//! **Reading.** The end is the last page from which an unbroken chain leads back to that page's
//! tail. Pages after it are what a power cut left of the last batch. A valid page of a *later*
//! batch after a gap means that a durable page is lost: that is damage, not a torn end.

#[cfg(test)]
mod tests;
mod writer;

use super::bytes_at::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use super::crc::crc32c;
use super::files::FileNo;
use super::geometry::{Blocks, Region};
use super::index::Root;
use super::map::Presence;
use crate::checksum::crc32c_of_page;
use crate::ids::{FlushMark, FlushMarks, Generation};

pub(crate) use self::writer::{LogWriter, Lsn, Need};

pub const PAGE: usize = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"SLOG");
const VERSION: u16 = 1;
const RECORDS: usize = 48;
/// A page and its copy.
pub(crate) const PLACE: usize = 2 * PAGE;

/// Bytes of a ring.
pub fn ring_bytes(pages: u32) -> u64 {
    u64::from(pages) * PLACE as u64
}

/// The shortest ring.
pub const MIN_PAGES: u32 = 32;
/// The longest: it is read into memory to be replayed.
pub const MAX_PAGES: u32 = 1 << 15;
/// Bytes of records in a page.
pub const ROOM: usize = PAGE - RECORDS;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Activate(Region),
    Deactivate(Region),
    Presence { file: FileNo, region: Region, delta: i16, presence: Presence },
    Checkpoint { work: u32, cursor: Region },
    Count { file: FileNo, blocks: u64 },
    Cursor { work: u32, region: Region },
    Root { file: FileNo, root: Root },
    SuperBlock { seq: u64 },
    Marks(FlushMarks),
}

impl Record {
    /// Bytes in a page.
    pub fn size(&self) -> usize {
        match self {
            Self::Activate(_) | Self::Deactivate(_) => 5,
            Self::Presence { .. } => 139,
            Self::Checkpoint { .. } | Self::Cursor { .. } => 9,
            Self::Count { .. } => 13,
            Self::Root { .. } => 21,
            Self::SuperBlock { .. } => 9,
            Self::Marks(_) => 33,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Activate(region) => {
                out.push(1);
                out.extend(region.0.to_le_bytes());
            }
            Self::Deactivate(region) => {
                out.push(2);
                out.extend(region.0.to_le_bytes());
            }
            Self::Presence { file, region, delta, presence } => {
                out.push(3);
                out.extend(file.0.to_le_bytes());
                out.extend(region.0.to_le_bytes());
                out.extend(delta.to_le_bytes());
                let words = presence.data.0.iter().chain(&presence.zero.0);
                out.extend(words.flat_map(|word| word.to_le_bytes()));
            }
            Self::Checkpoint { work, cursor } => {
                out.push(4);
                out.extend(work.to_le_bytes());
                out.extend(cursor.0.to_le_bytes());
            }
            Self::Count { file, blocks } => {
                out.push(5);
                out.extend(file.0.to_le_bytes());
                out.extend(blocks.to_le_bytes());
            }
            Self::Cursor { work, region } => {
                out.push(6);
                out.extend(work.to_le_bytes());
                out.extend(region.0.to_le_bytes());
            }
            Self::Root { file, root } => {
                out.push(16);
                out.extend(file.0.to_le_bytes());
                out.extend(root.clean.to_le_bytes());
                out.extend(root.digest.to_le_bytes());
            }
            Self::SuperBlock { seq } => {
                out.push(17);
                out.extend(seq.to_le_bytes());
            }
            Self::Marks(FlushMarks { flushed, complete }) => {
                out.push(7);
                for mark in [flushed, complete] {
                    out.extend(mark.generation.0.to_le_bytes());
                    out.extend(mark.number.to_le_bytes());
                }
            }
        }
    }

    /// The first record in `bytes`, if there is a whole one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let region = |at| Region(get_u32(bytes, at));
        let needs = |len| (bytes.len() >= len).then_some(());
        match bytes.first()? {
            1 => needs(5).map(|()| Self::Activate(region(1))),
            2 => needs(5).map(|()| Self::Deactivate(region(1))),
            3 => needs(139).and_then(|()| {
                let words = |at: usize| Blocks(std::array::from_fn(|i| get_u64(bytes, at + i * 8)));
                let presence = Presence::new(words(11), words(75));
                presence.is_sane().then(|| Self::Presence {
                    file: FileNo(get_u32(bytes, 1)),
                    region: region(5),
                    delta: get_u16(bytes, 9) as i16,
                    presence,
                })
            }),
            4 => needs(9).map(|()| Self::Checkpoint { work: get_u32(bytes, 1), cursor: region(5) }),
            5 => needs(13).map(|()| Self::Count {
                file: FileNo(get_u32(bytes, 1)),
                blocks: get_u64(bytes, 5),
            }),
            6 => needs(9).map(|()| Self::Cursor { work: get_u32(bytes, 1), region: region(5) }),
            16 => needs(21).map(|()| Self::Root {
                file: FileNo(get_u32(bytes, 1)),
                root: Root { clean: get_u64(bytes, 5), digest: get_u64(bytes, 13) },
            }),
            17 => needs(9).map(|()| Self::SuperBlock { seq: get_u64(bytes, 1) }),
            7 => needs(33).map(|()| {
                let mark = |at| FlushMark {
                    generation: Generation(get_u64(bytes, at)),
                    number: get_u64(bytes, at + 8),
                };
                Self::Marks(FlushMarks { flushed: mark(1), complete: mark(17) })
            }),
            _ => None,
        }
    }
}

/// The part of a page that is not records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub seq: u64,
    pub batch: u64,
    pub tail: u64,
    pub tag: u64,
    pub before: u32,
}

/// Makes a page. Gives its checksum too, for the next one.
pub(crate) fn encode_page(header: Header, records: &[u8], page: &mut [u8]) -> u32 {
    debug_assert!(records.len() <= ROOM && page.len() == PAGE);
    page.fill(0);
    put_u32(page, 0, MAGIC);
    put_u64(page, 8, header.seq);
    put_u64(page, 16, header.batch);
    put_u64(page, 24, header.tail);
    put_u64(page, 32, header.tag);
    put_u32(page, 40, header.before);
    put_u16(page, 44, records.len() as u16);
    put_u16(page, 46, VERSION);
    page[RECORDS..RECORDS + records.len()].copy_from_slice(records);
    let crc = crc32c(page);
    put_u32(page, 4, crc);
    crc
}

struct PageRead<'a> {
    header: Header,
    crc: u32,
    records: &'a [u8],
}

/// Reads a page that should be at `position` of a ring of `pages`.
fn decode_page(page: &[u8], position: u64, pages: u64, tag: u64) -> Option<PageRead<'_>> {
    if get_u32(page, 0) != MAGIC || get_u16(page, 46) != VERSION {
        return None;
    }
    let crc = get_u32(page, 4);
    if crc32c_of_page(page) != crc {
        return None;
    }
    let header = Header {
        seq: get_u64(page, 8),
        batch: get_u64(page, 16),
        tail: get_u64(page, 24),
        tag: get_u64(page, 32),
        before: get_u32(page, 40),
    };
    let records = page.get(RECORDS..RECORDS + get_u16(page, 44) as usize)?;
    let sane = header.tag == tag
        && header.seq % pages == position
        && header.batch <= header.seq
        && header.tail <= header.seq
        && header.seq - header.tail < pages;
    sane.then_some(PageRead { header, crc, records })
}

/// Which of the two copies of a page are not the page with this sequence.
pub(crate) fn damaged_copies(place: &[u8], seq: u64, pages: u64, tag: u64) -> [bool; 2] {
    let (page, copy) = place.split_at(PAGE);
    [page, copy].map(|bytes| {
        let found = decode_page(bytes, seq % pages, pages, tag);
        found.is_none_or(|page| page.header.seq != seq)
    })
}

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("no page of the log is valid")]
    Empty,
    #[error("page {seq} of the log is lost although later ones are there")]
    Lost { seq: u64 },
    #[error("page {seq} of the log holds a record that is not understood")]
    Record { seq: u64 },
}

/// The content of a log.
#[derive(Debug, PartialEq)]
pub struct Replay {
    pub records: Vec<Record>,
    /// Pages that were read.
    pub pages: u64,
    /// The sequence of the next page.
    pub next: u64,
    pub tail: u64,
    /// The checksum of the last page.
    pub last: u32,
    /// Pages after the end that a torn batch left.
    pub torn: u64,
}

/// Reads a ring.
pub fn replay(ring: &[u8], tag: u64) -> Result<Replay, LogError> {
    let pages = (ring.len() / PLACE) as u64;
    let read: Vec<Option<PageRead<'_>>> = (0..pages)
        .zip(ring.chunks_exact(PLACE))
        .map(|(position, place)| {
            let (page, copy) = place.split_at(PAGE);
            decode_page(page, position, pages, tag)
                .or_else(|| decode_page(copy, position, pages, tag))
        })
        .collect();
    let at = |seq: u64| read[(seq % pages) as usize].as_ref().filter(|page| page.header.seq == seq);
    let mut ends: Vec<u64> = read.iter().flatten().map(|page| page.header.seq).collect();
    ends.sort_unstable();
    if ends.is_empty() {
        return Err(LogError::Empty);
    }
    let is_end = |end: u64| {
        let tail = at(end).expect("the list holds valid pages").header.tail;
        // From the newest to the oldest, each must name the one before.
        (tail..=end).all(|seq| match (at(seq), seq.checked_sub(1).and_then(at)) {
            (None, _) => false,
            (Some(_), _) if seq == tail => true,
            (Some(page), Some(before)) => page.header.before == before.crc,
            (Some(_), None) => false,
        })
    };
    let end = ends.iter().rev().copied().find(|end| is_end(*end));
    let gap = end.map_or(0, |end| end + 1);
    let mut after = ends.iter().filter(|seq| end.is_none_or(|end| **seq > end));
    if let Some(later) =
        after.clone().find(|seq| at(**seq).is_some_and(|page| page.header.batch > gap))
    {
        debug_assert!(*later > gap);
        return Err(LogError::Lost { seq: gap });
    }
    let Some(end) = end else { return Err(LogError::Empty) };
    let last = at(end).expect("the end is a valid page");
    let mut records = Vec::new();
    for seq in last.header.tail..=end {
        let mut bytes = at(seq).expect("the chain is unbroken").records;
        while !bytes.is_empty() {
            let record = Record::decode(bytes).ok_or(LogError::Record { seq })?;
            bytes = &bytes[record.size()..];
            records.push(record);
        }
    }
    Ok(Replay {
        records,
        pages: end - last.header.tail + 1,
        next: end + 1,
        tail: last.header.tail,
        last: last.crc,
        torn: after.by_ref().count() as u64,
    })
}
