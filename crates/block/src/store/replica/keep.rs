//! Keeping the checksums of pages at rest where the next process finds them: [`crate::store::sums`].
//!
//! ```text
//!            flush, nobody writes            written
//!  (no place) ───────────────────► Writing ─────────► Kept
//!      ▲                                                │ somebody wants to write
//!      └────────────── cleared ◄─── Clearing ◄──────────┘
//! ```
//!
//! A page without a place has whatever checksums its data has when it is read again.

use std::collections::BTreeMap;

use super::{Parking, Purpose, Replica, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::{FileId, Place};
use crate::store::geometry::Region;
use crate::store::map::Crcs;
use crate::store::recent::PageName;
use crate::store::region::Phase;
use crate::store::request::{IoOp, IoResult};
use crate::store::slab::Key;
use crate::store::sums::{self, CLEAR, Mark};

#[derive(Debug)]
struct Kept {
    place: u32,
    state: State,
    /// Who wants to write to the page.
    waiting: Vec<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Writing,
    Kept,
    Clearing,
}

#[derive(Debug, Default)]
pub(super) struct Keeper {
    pages: BTreeMap<PageKey, Kept>,
    /// Places that no page has.
    free: Vec<u32>,
    /// Pages that were written since their checksums were kept.
    due: Vec<PageKey>,
    /// The mark in the file, and whether it is being written.
    mark: u64,
    marking: bool,
    /// What a process that was killed knew about pages that nobody has looked at since.
    expected: BTreeMap<PageKey, Box<Crcs>>,
}

impl Keeper {
    /// Takes over what an earlier process left, in a file with so many places.
    pub(super) fn new(places: usize, found: Vec<(u32, sums::Sums)>) -> Self {
        let mut keeper = Self::default();
        let mut taken = std::collections::BTreeSet::new();
        for (place, sums) in found {
            let key = key_of(sums.page);
            // Of two about a page, which are nonsense, none: the place stays as it is.
            taken.insert(place);
            let kept = Kept { place, state: State::Kept, waiting: Vec::new() };
            if keeper.pages.insert(key, kept).is_none() {
                keeper.expected.insert(key, sums.crcs);
            } else {
                keeper.expected.remove(&key);
            }
        }
        let places = 0..u32::try_from(places).unwrap_or(0);
        keeper.free = places.rev().filter(|place| !taken.contains(place)).collect();
        keeper
    }

    /// The checksums that a page had when the process that wrote it was killed.
    pub(super) fn take_expected(&mut self, key: PageKey) -> Option<Box<Crcs>> {
        self.expected.remove(&key)
    }

    /// What is known about other pages is in their maps.
    pub(super) fn expect_only(&mut self, is_suspect: impl Fn(Region) -> bool) {
        self.expected.retain(|key, _| is_suspect(key.region));
    }

    pub(super) fn forget(&mut self, map: FileId) {
        self.due.retain(|key| key.file != map);
        self.expected.retain(|key, _| key.file != map);
    }

    pub(super) fn memory(&self) -> usize {
        self.pages.len() * (size_of::<(PageKey, Kept)>() + 16)
            + self.expected.len() * (size_of::<Crcs>() + 32)
    }
}

fn key_of((file, region): PageName) -> PageKey {
    PageKey { file: own_map(file), region }
}

impl Replica {
    /// Whether nothing is kept about a page, so that it may be written. If there is, it is
    /// cleared, and the operation is parked.
    pub(super) fn is_cleared(&mut self, parking: &mut Parking, key: PageKey) -> bool {
        let Some(kept) = self.keeper.pages.get_mut(&key) else { return true };
        parking.at(&mut kept.waiting);
        self.clear(key);
        false
    }

    /// A page was written: its checksums are kept after the next flush.
    pub(super) fn keep_later(&mut self, index: PageIndex) {
        let page = self.cache.page_mut(index);
        if !page.keep {
            page.keep = true;
            self.keeper.due.push(page.key);
        }
    }

    /// Keeps the checksums of pages that were written and that nobody writes just now.
    pub(super) fn keep_sums(&mut self) {
        let mut later = Vec::new();
        for key in std::mem::take(&mut self.keeper.due) {
            let Known::Cached(index) = self.cache.known(key) else { continue };
            let entry = self.regions.get(key.region);
            // The checksums of a region that is not active are in its map.
            let active = entry.is_some_and(|entry| entry.phase == Phase::Active);
            let busy =
                entry.is_some_and(|entry| entry.writers > 0 || entry.locked || entry.suspect);
            if busy || self.keeper.pages.contains_key(&key) {
                later.push(key);
                continue;
            }
            if active && !self.keep(index, key) {
                later.push(key);
                continue;
            }
            self.cache.page_mut(index).keep = false;
        }
        self.keeper.due.append(&mut later);
    }

    /// Writes the checksums of a page into a place. False if there is none.
    fn keep(&mut self, index: PageIndex, key: PageKey) -> bool {
        let FileId::Map(Place::Own, file) = key.file else { return true };
        let Some(place) = self.keeper.free.pop() else {
            self.clear_inactive();
            return false;
        };
        let page = self.cache.page(index);
        let data = sums::encode(self.boot, self.meta.tag(), (file, key.region), &page.crcs);
        let kept = Kept { place, state: State::Writing, waiting: Vec::new() };
        self.keeper.pages.insert(key, kept);
        let op = IoOp::Write { offset: sums::offset(place), data: data.into(), durable: false };
        self.issue(Purpose::Keep(key), FileId::Sums, op);
        true
    }

    /// Gives up the place of a page whose region has become inactive.
    fn clear_inactive(&mut self) {
        let regions = &self.regions;
        let is_active =
            |region| regions.get(region).is_some_and(|entry| entry.phase != Phase::Inactive);
        let mut pages = self.keeper.pages.iter();
        let idle = pages.find(|(key, kept)| kept.state == State::Kept && !is_active(key.region));
        if let Some(key) = idle.map(|(key, _)| *key) {
            self.clear(key);
        }
    }

    fn clear(&mut self, key: PageKey) {
        let Some(kept) = self.keeper.pages.get_mut(&key) else { return };
        if kept.state == State::Kept {
            kept.state = State::Clearing;
            let offset = sums::offset(kept.place);
            let data = bytes::Bytes::from_static(&CLEAR);
            let op = IoOp::Write { offset, data, durable: false };
            self.issue(Purpose::Keep(key), FileId::Sums, op);
        }
    }

    /// Leaves a mark of how far the log is durable. Nobody waits for it.
    pub(super) fn mark_log(&mut self) {
        let next = self.log.durable_next();
        if !self.keeper.marking && self.keeper.mark < next {
            self.keeper.mark = next;
            self.keeper.marking = true;
            let data = Mark(next).encode(self.meta.tag()).into();
            let op = IoOp::Write { offset: 0, data, durable: false };
            self.issue(Purpose::Mark, FileId::Sums, op);
        }
    }

    pub(super) fn mark_written(&mut self) {
        self.keeper.marking = false;
        self.mark_log();
    }

    pub(super) fn keep_io(&mut self, key: PageKey, result: IoResult) {
        let Some(kept) = self.keeper.pages.get_mut(&key) else { return };
        let waiting = std::mem::take(&mut kept.waiting);
        match (kept.state, result) {
            (State::Writing, Ok(_)) => kept.state = State::Kept,
            // What is there is not whole, or it could not have failed.
            (State::Writing, Err(_)) => drop(self.keeper.pages.remove(&key)),
            (State::Clearing, Ok(_)) => {
                let place = kept.place;
                self.keeper.pages.remove(&key);
                self.keeper.expected.remove(&key);
                self.keeper.free.push(place);
                // Whoever wanted to write may not do it after all.
                if let Known::Cached(index) = self.cache.known(key) {
                    self.keep_later(index);
                }
            }
            (_, Err(fault)) => return self.cannot_write(FileId::Sums, fault),
            (State::Kept, Ok(_)) => unreachable!("no operation is in flight"),
        }
        self.ready.extend(waiting);
    }
}
