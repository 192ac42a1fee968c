//! Which checksums the file `sums` has to say, and when data may be written: pure.
//!
//! ```text
//!            write wants block      record written            data synced, record written
//!  closed ─────────────────────► opening ──────────────► open ──────────────────────────► closed
//! ```
//!
//! A block is *closed* while the record of its page says what it holds. Before its data changes it
//! is opened: the record says that the block may hold anything, and only then is the data written.
//! A flush closes the blocks that no write has touched since it began. So after a kill, a closed
//! block that does not match its checksum is damaged, and an open one is what an unflushed write
//! left of it.
//!
//! **Invariants.** The checksums of a page change for open blocks only. A page without a record
//! is on disk as it is in memory, unless [`SumPlaces::overflows`]. A record that is being written
//! covers no block that was opened since.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::record::SumRecord;
use crate::store::cache::KeyHasher;
use crate::store::files::FileNo;
use crate::store::geometry::{Blocks, REGION_BLOCKS, Region};
use crate::store::map::Crcs;
use crate::store::recent::{PageName, Ticket};

/// A place that no page has.
pub(crate) const NO_PAGE: PageName = (FileNo(u32::MAX), Region(u32::MAX));
/// The page of the record that stands for all pages without one.
pub(crate) const OTHERS: PageName = (FileNo(u32::MAX), Region(u32::MAX - 1));

/// All blocks of a page.
pub(crate) const ALL: Blocks = Blocks([u64::MAX; REGION_BLOCKS as usize / 64]);

#[derive(Debug)]
struct SumSlot {
    page: PageName,
    open: Blocks,
    /// Blocks that the record in the file, and any that is being written, say are open.
    recorded: Blocks,
    /// Blocks that were written since the last flush began.
    touched: Blocks,
    /// Writes of data that have not ended: first block and count.
    in_flight: Vec<(u32, u32)>,
    changed: Ticket,
    written: Ticket,
    /// The first change that is not recorded, as in `outstanding`.
    since: Option<Ticket>,
    /// The open blocks of the record that is being written.
    writing: Option<(Ticket, Blocks)>,
    is_due: bool,
}

impl SumSlot {
    fn new(page: PageName) -> Self {
        Self {
            page,
            open: Blocks::NONE,
            recorded: Blocks::NONE,
            touched: Blocks::NONE,
            in_flight: Vec::new(),
            changed: Ticket(0),
            written: Ticket(0),
            since: None,
            writing: None,
            is_due: false,
        }
    }

    fn is_settled(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty() && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.changed == self.written && self.writing.is_none()
    }
}

/// The next record to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub place: u32,
    pub page: PageName,
    pub ticket: Ticket,
    pub open: Blocks,
}

#[derive(Debug, Default)]
pub(crate) struct SumPlaces {
    /// There is a file: without one every block counts as open.
    keeps: bool,
    slots: Vec<SumSlot>,
    index: HashMap<PageName, u32, BuildHasherDefault<KeyHasher>>,
    free: Vec<u32>,
    limit: usize,
    last: Ticket,
    /// For each slot whose record is not written as it should be, since when.
    outstanding: BTreeSet<(Ticket, u32)>,
    due: VecDeque<u32>,
    /// Slots with open blocks.
    open: BTreeSet<u32>,
    /// Checksums that an earlier process left, until their region has been verified.
    left: BTreeMap<PageName, Box<Crcs>>,
}

impl SumPlaces {
    /// Takes over what an earlier process left, in a file with so many places. `counts` says whether
    /// a region was being written: what is left of others is not needed.
    pub(crate) fn new(
        found: Vec<Option<SumRecord>>,
        limit: usize,
        counts: impl Fn(Region) -> bool,
    ) -> Self {
        let last = found.iter().flatten().map(|record| record.ticket).max().unwrap_or_default();
        let mut sums = Self { keeps: limit > 0, limit, last, ..Self::default() };
        for (at, record) in (0u32..).zip(found).take(limit) {
            let needed = |it: &SumRecord| it.page == OTHERS || counts(it.page.1);
            let Some(record) = record.filter(needed) else {
                sums.slots.push(SumSlot::new(NO_PAGE));
                sums.free.extend((at > 0).then_some(at));
                continue;
            };
            let (open, ticket) = (record.open, record.ticket);
            let slot =
                SumSlot { open, recorded: open, changed: ticket, ..SumSlot::new(record.page) };
            sums.slots.push(SumSlot { written: ticket, ..slot });
            sums.index.insert(record.page, at);
            if !open.is_empty() {
                sums.open.insert(at);
            }
            sums.left.insert(record.page, record.crcs);
        }
        sums
    }

    /// Whether the file has checksums of this session.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Whether pages that have no record may have been written all the same.
    fn overflows(&self) -> bool {
        self.index.contains_key(&OTHERS)
    }

    /// Blocks of a page whose content the file does not know.
    pub(crate) fn open_blocks(&self, page: PageName) -> Blocks {
        match self.index.get(&page) {
            _ if !self.keeps => ALL,
            Some(at) => self.slots[*at as usize].open,
            None if self.overflows() => ALL,
            None => Blocks::NONE,
        }
    }

    /// The checksums that an earlier process left for a page.
    pub(crate) fn take_left(&mut self, page: PageName) -> Option<Box<Crcs>> {
        self.left.remove(&page)
    }

    /// Whether the data of these blocks may change. If not, it may once records that are due are
    /// written. `is_clean` says whether a page is on disk as it is in memory.
    pub(crate) fn open(
        &mut self,
        page: PageName,
        blocks: &Blocks,
        is_clean: impl FnMut(PageName) -> bool,
    ) -> bool {
        if !self.keeps || blocks.is_empty() {
            return true;
        }
        let others = self.index.get(&OTHERS).copied();
        let known = self.index.get(&page).copied();
        if let Some(at) = known.or_else(|| others.or_else(|| self.place(page, is_clean))) {
            let of_page = self.slots[at as usize].page == page;
            return self.open_in(at, if of_page { blocks } else { &ALL });
        }
        // There is no place: from now on a page without a record may be anything.
        self.slots[0].page = OTHERS;
        self.index.insert(OTHERS, 0);
        self.open_in(0, &ALL)
    }

    fn open_in(&mut self, at: u32, blocks: &Blocks) -> bool {
        let slot = &mut self.slots[at as usize];
        if slot.open.and(&slot.recorded).and(blocks) == *blocks {
            return true;
        }
        if slot.open.and(blocks) != *blocks {
            slot.open = slot.open.or(blocks);
            slot.touched = slot.touched.or(blocks);
            self.open.insert(at);
            self.change(at);
        }
        false
    }

    /// Gives a page a place: a fresh one, or that of a page that needs none. The first is kept for
    /// when there is no other.
    fn place(&mut self, page: PageName, mut is_clean: impl FnMut(PageName) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            self.slots.push(SumSlot::new(NO_PAGE));
        }
        let fresh = self.slots.len() < self.limit;
        let at = match self.free.pop() {
            Some(at) => at,
            None if fresh => {
                self.slots.push(SumSlot::new(NO_PAGE));
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => {
                let slots = (0u32..).zip(&self.slots).skip(1);
                let mut settled = slots.filter(|(_, slot)| slot.is_settled());
                let (at, slot) = settled.find(|(_, slot)| is_clean(slot.page))?;
                self.index.remove(&slot.page);
                at
            }
        };
        let slot = &mut self.slots[at as usize];
        let written = slot.written;
        *slot = SumSlot { changed: written, written, ..SumSlot::new(page) };
        self.index.insert(page, at);
        Some(at)
    }

    fn change(&mut self, at: u32) {
        self.last.0 += 1;
        let last = self.last;
        let slot = &mut self.slots[at as usize];
        if slot.since.is_none() {
            slot.since = Some(last);
            self.outstanding.insert((last, at));
        }
        slot.changed = last;
        if slot.writing.is_none() && !slot.is_due {
            slot.is_due = true;
            self.due.push_back(at);
        }
    }

    /// A write of data begins. Its blocks are open.
    pub(crate) fn begin_write(&mut self, page: PageName, first: u32, count: u32) {
        let Some(at) = self.index.get(&page) else { return };
        let slot = &mut self.slots[*at as usize];
        let blocks = Blocks::of(first, count);
        debug_assert!(slot.open.and(&slot.recorded).and(&blocks) == blocks);
        slot.in_flight.push((first, count));
        slot.touched = slot.touched.or(&blocks);
    }

    pub(crate) fn end_write(&mut self, page: PageName, first: u32, count: u32) {
        let Some(at) = self.index.get(&page) else { return };
        let slot = &mut self.slots[*at as usize];
        let ended = slot.in_flight.iter().position(|it| *it == (first, count));
        ended.map(|ended| slot.in_flight.swap_remove(ended));
    }

    /// A flush begins to make durable what was written until now.
    pub(crate) fn begin_flush(&mut self) {
        for at in &self.open {
            let slot = &mut self.slots[*at as usize];
            let spans = slot.in_flight.iter().map(|(first, count)| Blocks::of(*first, *count));
            slot.touched = spans.fold(Blocks::NONE, |all, blocks| all.or(&blocks));
        }
    }

    /// Data from before the flush began is durable. `may_close` says whether the checksums
    /// of a page in memory are those of its data.
    pub(crate) fn close(&mut self, mut may_close: impl FnMut(PageName) -> bool) -> Ticket {
        for at in std::mem::take(&mut self.open) {
            let slot = &mut self.slots[at as usize];
            let open = slot.open.and(&slot.touched);
            if slot.page != OTHERS && open != slot.open && may_close(slot.page) {
                slot.open = open;
                self.change(at);
            }
            if !self.slots[at as usize].open.is_empty() {
                self.open.insert(at);
            }
        }
        self.last
    }

    /// Whether every change up to the ticket is recorded.
    pub(crate) fn is_recorded(&self, upto: Ticket) -> bool {
        self.outstanding.first().is_none_or(|(first, _)| *first > upto)
    }

    /// The next record to write. [`Self::written`] follows when it is in the file.
    pub(crate) fn next_due(&mut self) -> Option<Due> {
        let place = self.due.pop_front()?;
        let slot = &mut self.slots[place as usize];
        slot.is_due = false;
        slot.recorded = slot.recorded.and(&slot.open);
        slot.writing = Some((slot.changed, slot.open));
        Some(Due { place, page: slot.page, ticket: slot.changed, open: slot.open })
    }

    /// A record is in the file.
    pub(crate) fn written(&mut self, place: u32) {
        let slot = &mut self.slots[place as usize];
        let (upto, open) = slot.writing.take().expect("a record is being written");
        slot.since.take().map(|since| self.outstanding.remove(&(since, place)));
        slot.written = upto;
        slot.recorded = open;
        if slot.page == NO_PAGE {
            self.free.push(place);
        } else if slot.changed > upto {
            let next = Ticket(upto.0 + 1);
            slot.since = Some(next);
            self.outstanding.insert((next, place));
            slot.is_due = true;
            self.due.push_back(place);
        }
    }

    /// The page is on disk as it is in memory, or its layer is gone: it needs no record.
    pub(crate) fn release(&mut self, page: PageName) {
        self.left.remove(&page);
        let Some(at) = self.index.remove(&page) else { return };
        self.open.remove(&at);
        let slot = &mut self.slots[at as usize];
        slot.since.take().map(|since| self.outstanding.remove(&(since, at)));
        if slot.is_due {
            self.due.retain(|due| *due != at);
        }
        let (written, writing) = (slot.written, slot.writing.take());
        if writing.is_none() {
            self.free.push(at);
        }
        *slot = SumSlot { changed: written, written, writing, ..SumSlot::new(NO_PAGE) };
    }

    /// Whether a page has open blocks, or a record that is not written: then it has to stay in
    /// memory.
    pub(crate) fn needs(&self, page: PageName) -> bool {
        let slot = self.index.get(&page).map(|at| &self.slots[*at as usize]);
        slot.is_some_and(|slot| !slot.is_settled())
    }

    /// The pages that have a place.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageName> {
        self.index.keys().copied().filter(|page| *page != OTHERS)
    }

    /// The file was made anew: all records are due.
    pub(crate) fn write_anew(&mut self) {
        let places: Vec<u32> = self.index.values().copied().collect();
        places.into_iter().for_each(|at| self.change(at));
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<SumSlot>()
            + self.index.capacity() * (size_of::<(PageName, u32)>() + 1)
            + self.left.len() * size_of::<Crcs>()
    }
}

#[cfg(test)]
mod tests;
