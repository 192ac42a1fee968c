//! Recent changes: presence that no flush has made durable yet, for the process that follows if
//! this one is killed.
//!
//! Data that a process wrote to a file stays in the kernel's cache after its end. The blocks of a
//! write that was answered are there; this file says that they belong to the layer. It is never
//! synced, and not read after a power cut: each record carries the id of the boot it was made in.
//!
//! The file `recent` has places of 256 bytes, so that no record crosses a page of the cache. Places
//! that were never used are zeroes.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SRE2` (`SREC` without the last field) |
//! | 4 | 4 | CRC-32C of the record, with this field zero |
//! | 8 | 16 | boot |
//! | 24 | 8 | tag of the replica |
//! | 32 | 8 | ticket: of two records about a page the one with the greater counts |
//! | 40 | 4 | number of the file |
//! | 44 | 4 | region |
//! | 48 | 64 | bit per block: has data |
//! | 112 | 64 | bit per block: is zeroes |
//! | 176 | 4 | places in use when this was written; absent in records of magic `SREC` |
//!
//! After the last place follows a stamp, which [`stamp`] describes: the file belongs to a session.
//!
//! [`Recent`] decides which place a page has, and which record is written next. One record is
//! written at a time: a killed process leaves all records up to a moment, without gaps.
//!
//! **Invariant.** A record is never older than what is committed for its page: every change is
//! recorded, a flush commits only what was recorded, and a change is answered after either. A
//! record of a page without uncommitted changes therefore says what the map says, and its place
//! can be given to another page without being cleared.

pub mod stamp;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::bytes_at::{get_u32, get_u64, get_u128, put_u32, put_u64, put_u128};
use super::cache::KeyHasher;
use super::crc::crc32c;
use super::files::FileNo;
use super::geometry::{Blocks, Region};
use super::map::Presence;
use crate::checksum::crc32c_of_page;
use crate::ids::BootId;

/// Bytes of a place.
pub const PLACE: u64 = 256;
/// Bytes of a record, and of one that an earlier version wrote.
const RECORD: usize = 180;
const OLD_RECORD: usize = 176;
const MAGIC: u32 = u32::from_le_bytes(*b"SRE2");
const OLD_MAGIC: u32 = u32::from_le_bytes(*b"SREC");
/// The page of a place that is in use and says nothing.
const NO_PAGE: PageName = (FileNo(u32::MAX), Region(u32::MAX));

/// A layer's part of a region.
pub(crate) type PageName = (FileNo, Region);

/// Counts changes. A change is recorded when [`Recent::is_recorded`] says so of its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub u64);

/// One record as it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub ticket: Ticket,
    pub page: PageName,
    pub presence: Presence,
}

/// A place that holds nothing, among `places` that are in use.
pub(crate) fn encode_empty(boot: BootId, tag: u64, places: u32) -> Vec<u8> {
    let record = Record { ticket: Ticket(0), page: NO_PAGE, presence: Presence::default() };
    encode(boot, tag, &record, places)
}

pub(crate) fn encode(boot: BootId, tag: u64, record: &Record, places: u32) -> Vec<u8> {
    let mut bytes = vec![0; RECORD];
    put_u32(&mut bytes, 0, MAGIC);
    put_u128(&mut bytes, 8, boot.as_u128());
    put_u64(&mut bytes, 24, tag);
    put_u64(&mut bytes, 32, record.ticket.0);
    put_u32(&mut bytes, 40, record.page.0.0);
    put_u32(&mut bytes, 44, record.page.1.0);
    for i in 0..8 {
        put_u64(&mut bytes, 48 + i * 8, record.presence.data.0[i]);
        put_u64(&mut bytes, 112 + i * 8, record.presence.zero.0[i]);
    }
    put_u32(&mut bytes, 176, places);
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, 4, crc);
    bytes
}

/// The bytes of a place that a record of this boot covers, if it is whole.
fn whole(place: &[u8], boot: BootId, tag: u64) -> Option<&[u8]> {
    let len = match get_u32(place.get(..RECORD)?, 0) {
        MAGIC => RECORD,
        OLD_MAGIC => OLD_RECORD,
        _ => return None,
    };
    let bytes = place.get(..len)?;
    let ours = crc32c_of_page(bytes) == get_u32(bytes, 4)
        && get_u128(bytes, 8) == boot.as_u128()
        && get_u64(bytes, 24) == tag;
    ours.then_some(bytes)
}

/// How many places were in use when a record was written, as far as it says.
fn places_in_use(record: &[u8]) -> usize {
    if record.len() == RECORD { get_u32(record, 176) as usize } else { 0 }
}

/// The record in a place, if it is whole and of this boot.
pub(crate) fn decode(place: &[u8], boot: BootId, tag: u64) -> Option<Record> {
    let bytes = whole(place, boot, tag)?;
    let words = |at: usize| Blocks(std::array::from_fn(|i| get_u64(bytes, at + i * 8)));
    let presence = Presence::new(words(48), words(112));
    presence.is_sane().then(|| Record {
        ticket: Ticket(get_u64(bytes, 32)),
        page: (FileNo(get_u32(bytes, 40)), Region(get_u32(bytes, 44))),
        presence,
    })
}

/// Which records a file holds, by place: those of this boot, and of each page the newest.
pub(crate) fn read(file: &[u8], boot: Option<BootId>, tag: u64) -> Vec<Option<Record>> {
    let Some(boot) = boot else { return Vec::new() };
    let places = file.chunks_exact(PLACE as usize);
    let mut records: Vec<Option<Record>> = places.map(|place| decode(place, boot, tag)).collect();
    let mut newest: HashMap<PageName, Ticket> = HashMap::new();
    for record in records.iter().flatten() {
        let known = newest.entry(record.page).or_insert(record.ticket);
        *known = (*known).max(record.ticket);
    }
    for record in &mut records {
        // Of two with the same ticket, which are nonsense, one.
        record.take_if(|record| newest.get(&record.page) != Some(&record.ticket));
        record.as_ref().map(|record| newest.remove(&record.page));
    }
    records
}

/// The next write to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub page: PageName,
    pub ticket: Ticket,
    /// Where in the file.
    pub offset: u64,
}

#[derive(Debug)]
struct Slot {
    page: PageName,
    /// The last change, and the last one that the file has.
    changed: Ticket,
    written: Ticket,
}

/// The file in memory: the pages that have each place.
#[derive(Debug)]
pub(crate) struct Recent {
    slots: Vec<Slot>,
    index: HashMap<PageName, u32, BuildHasherDefault<KeyHasher>>,
    /// Places that the file has.
    limit: usize,
    last: Ticket,
    /// For each slot with changes that are not recorded, the first.
    outstanding: BTreeSet<(Ticket, u32)>,
    due: VecDeque<u32>,
    writing: Option<(u32, Ticket)>,
    /// Places that hold a record.
    filled: u32,
    hand: usize,
}

impl Recent {
    /// Takes over what an earlier process left, in a file with so many places.
    pub(crate) fn new(found: &[Option<Record>], limit: usize) -> Self {
        let mut recent = Self {
            slots: Vec::new(),
            index: HashMap::default(),
            limit,
            last: Ticket(0),
            outstanding: BTreeSet::new(),
            due: VecDeque::new(),
            writing: None,
            filled: 0,
            hand: 0,
        };
        let used = found.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        for (at, record) in (0u32..).zip(&found[..used.min(limit)]) {
            recent.filled = at + 1;
            let page = record.as_ref().map_or(NO_PAGE, |record| record.page);
            let ticket = record.as_ref().map_or(Ticket(0), |record| record.ticket);
            recent.slots.push(Slot { page, changed: ticket, written: ticket });
            recent.last = recent.last.max(ticket);
            if page != NO_PAGE {
                recent.index.insert(page, at);
            }
        }
        recent
    }

    /// The number of the last change.
    pub(crate) fn ticket(&self) -> Ticket {
        self.last
    }

    /// Notes that a page's presence has changed. False if there is no place for it: then only
    /// a flush makes the change safe. `is_settled` says whether a page has nothing uncommitted.
    pub(crate) fn changed(
        &mut self,
        page: PageName,
        is_settled: impl FnMut(PageName) -> bool,
    ) -> bool {
        let slot = match self.index.get(&page) {
            Some(slot) => *slot,
            None => match self.place(page, is_settled) {
                Some(slot) => slot,
                None => return false,
            },
        };
        self.last.0 += 1;
        let entry = &mut self.slots[slot as usize];
        if entry.changed == entry.written {
            self.outstanding.insert((self.last, slot));
            self.due.push_back(slot);
        }
        entry.changed = self.last;
        true
    }

    fn place(
        &mut self,
        page: PageName,
        mut is_settled: impl FnMut(PageName) -> bool,
    ) -> Option<u32> {
        let fresh = Slot { page, changed: self.last, written: self.last };
        let slot = if self.slots.len() < self.limit {
            self.slots.push(fresh);
            self.slots.len() - 1
        } else {
            let free = |slot: &Slot| slot.changed == slot.written && is_settled(slot.page);
            let count = self.slots.len();
            let mut places = (1..=count).map(|step| (self.hand + step) % count);
            let mut free = free;
            let at = places.find(|at| free(&self.slots[*at]))?;
            self.hand = at;
            self.index.remove(&self.slots[at].page);
            self.slots[at] = fresh;
            at
        };
        let slot = u32::try_from(slot).ok()?;
        self.index.insert(page, slot);
        Some(slot)
    }

    /// Whether every change up to the ticket is recorded.
    pub(crate) fn is_recorded(&self, upto: Ticket) -> bool {
        self.outstanding.first().is_none_or(|(first, _)| *first > upto)
    }

    /// The next write. [`Self::written`] must follow before there is another.
    pub(crate) fn next_due(&mut self) -> Option<Due> {
        if self.writing.is_some() {
            return None;
        }
        let slot = self.due.pop_front()?;
        let entry = &self.slots[slot as usize];
        self.writing = Some((slot, entry.changed));
        self.filled = self.filled.max(slot + 1);
        let offset = u64::from(slot) * PLACE;
        Some(Due { page: entry.page, ticket: entry.changed, offset })
    }

    /// The write that was due is in the file.
    pub(crate) fn written(&mut self) {
        let (slot, upto) = self.writing.take().expect("a record is being written");
        let entry = &mut self.slots[slot as usize];
        let first = self.outstanding.iter().find(|(_, of)| *of == slot).copied();
        first.map(|first| self.outstanding.remove(&first));
        entry.written = upto;
        if entry.changed > upto {
            self.outstanding.insert((Ticket(upto.0 + 1), slot));
            self.due.push_back(slot);
        }
    }

    /// Whether a record is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Places that the file has.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The whole file but for its stamp, written anew while no record is being written. A page
    /// that `presence` does not know has no uncommitted changes: its place says nothing.
    pub(crate) fn written_anew(
        &mut self,
        boot: BootId,
        tag: u64,
        mut presence: impl FnMut(PageName) -> Option<Presence>,
    ) -> Vec<u8> {
        debug_assert!(self.writing.is_none());
        let mut bytes = vec![0; self.limit * PLACE as usize];
        self.filled = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        for (slot, place) in self.slots.iter().zip(bytes.chunks_exact_mut(PLACE as usize)) {
            let known = presence(slot.page);
            let page = if known.is_some() { slot.page } else { NO_PAGE };
            let presence = known.unwrap_or_default();
            let record = Record { ticket: slot.changed, page, presence };
            place[..RECORD].copy_from_slice(&encode(boot, tag, &record, self.filled));
        }
        bytes
    }

    /// Every change up to this one is recorded.
    pub(crate) fn recorded(&self) -> Ticket {
        self.outstanding.first().map_or(self.last, |(first, _)| Ticket(first.0 - 1))
    }

    /// Places that have been written, with the one that is. They are filled in order.
    pub(crate) fn places(&self) -> u32 {
        self.filled
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.index.capacity() * (size_of::<(PageName, u32)>() + 1)
    }
}

#[cfg(test)]
mod tests;
