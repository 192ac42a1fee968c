//! Access to map pages and regions: the preconditions of an operation that touches data.

use super::{LogWaiter, Purpose, Replica, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::{FileId, FileNo, Place};
use crate::store::geometry::{Blocks, Region, region_count};
use crate::store::index::{self, Entry, Stated};
use crate::store::log::Record;
use crate::store::map::{self, Owner, PAIR, Pair, decode_pair};
use crate::store::region::{Eager, Phase};
use crate::store::request::{IoFault, IoOp, IoResult, RequestError};
use crate::store::slab::Key;

/// Regions that are made ready for whoever writes one after the other.
const AHEAD: u32 = 8;

/// Puts an operation into the first waiting list it meets, and no other.
#[derive(Debug)]
pub(super) struct Parking {
    op: Key,
    pub(super) parked: bool,
}

impl Parking {
    pub(super) fn new(op: Key) -> Self {
        Self { op, parked: false }
    }

    pub(super) fn at(&mut self, list: &mut Vec<Key>) {
        if !self.parked {
            list.push(self.op);
            self.parked = true;
        }
    }
}

/// The file that space is allocated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Map,
    Index,
}

/// The file of the index that goes with a map, and the page in it.
fn index_place(key: PageKey) -> (FileId, u32) {
    let FileId::Map(place, file) = key.file else { unreachable!("pages are in map files") };
    (FileId::Index(place, file), key.region.0 / index::REGIONS)
}

/// Result of the lookup of a page.
pub(super) enum Lookup {
    Blank,
    Page(PageIndex),
    /// The operation is parked.
    Wait,
}

impl Replica {
    /// Finds a page, or has it loaded. A page that is damaged is there, and its blocks are lost.
    pub(super) fn look_up(
        &mut self,
        parking: &mut Parking,
        key: PageKey,
    ) -> Result<Lookup, RequestError> {
        match self.cache.known(key) {
            Known::Blank => Ok(Lookup::Blank),
            Known::Cached(index) => Ok(Lookup::Page(index)),
            Known::Unknown if self.index.get(key.file, key.region) == Stated::Blank => {
                Ok(Lookup::Blank)
            }
            Known::Unknown => {
                let mut is_new = false;
                let waiting = self.loading.entry(key).or_insert_with(|| {
                    is_new = true;
                    Vec::new()
                });
                parking.at(waiting);
                if is_new {
                    let offset = u64::from(key.region.0) * PAIR;
                    self.issue(Purpose::Load(key), key.file, IoOp::Read { offset, len: PAIR });
                }
                Ok(Lookup::Wait)
            }
        }
    }

    pub(super) fn page_loaded(&mut self, key: PageKey, result: IoResult) {
        let waiting = self.loading.remove(&key).unwrap_or_default();
        let pair = match result {
            Ok(pair) if pair.len() as u64 == PAIR => pair,
            other => {
                let errno = other.err().map_or(5, IoFault::errno);
                self.fail_ops(waiting, &RequestError::Io { file: key.file, errno });
                return;
            }
        };
        if let FileId::Map(Place::Own, file) = key.file
            && self.meta.body.layers.by_file(file).is_none()
        {
            // The layer was dropped meanwhile: operations that waited for the page read elsewhere
            // now.
            self.ready.extend(waiting);
            return;
        }
        let owner = self.owner(key);
        match self.index.get(key.file, key.region) {
            Stated::Blank => {}
            Stated::At(entry) => {
                match map::find(&pair, owner, entry) {
                    Some(page) => self.cache.insert(key, Some(page)),
                    None => self.cache.insert_lost(key, entry),
                };
            }
            Stated::Unindexed => match decode_pair(&pair, owner) {
                Pair::Blank => self.cache.set_blank(key),
                Pair::Page(page) => {
                    self.cache.insert(key, Some(page));
                }
                Pair::Damaged { .. } => {
                    self.cache.insert_lost(key, Entry::LOST);
                }
            },
        }
        self.ready.extend(waiting);
    }

    pub(super) fn owner(&self, key: PageKey) -> Owner {
        let (FileId::Map(place, file) | FileId::Data(place, file)) = key.file else {
            unreachable!("pages are in map files");
        };
        let tag = match place {
            Place::Own => self.meta.tag(),
            Place::Base(base) => self.bases[base as usize].tag,
        };
        Owner { tag, file, region: key.region }
    }

    /// Makes a region ready to be written in `file`: active, verified, not locked, its page in
    /// memory with a place on disk, and the blocks open whose data will change. Everything missing is
    /// set going at once.
    pub(super) fn ready_to_write(
        &mut self,
        parking: &mut Parking,
        file: FileNo,
        region: Region,
        blocks: &Blocks,
    ) -> Result<Option<PageIndex>, RequestError> {
        let entry = self.regions.entry(region);
        if entry.locked || entry.wanted {
            parking.at(&mut entry.waiting);
            return Ok(None);
        }
        self.ready_to_change(parking, file, region, blocks)
    }

    /// As [`Self::ready_to_write`], for whoever has the region's lock.
    pub(super) fn ready_to_change(
        &mut self,
        parking: &mut Parking,
        file: FileNo,
        region: Region,
        blocks: &Blocks,
    ) -> Result<Option<PageIndex>, RequestError> {
        if !self.ready_to_read(parking, region) {
            return Ok(None);
        }
        let active = self.make_active(parking, region);
        let key = PageKey { file: own_map(file), region };
        let index = match self.look_up(parking, key)? {
            Lookup::Wait => return Ok(None),
            Lookup::Blank => self.cache.insert(key, None),
            Lookup::Page(index) => index,
        };
        let allocated = self.cache.page(index).allocated || self.allocate(parking, key, index);
        let open = self.open_blocks(parking, index, blocks);
        Ok((active && allocated && open).then_some(index))
    }

    /// Whether the checksums of a region can be believed; if not, they are checked.
    pub(super) fn ready_to_read(&mut self, parking: &mut Parking, region: Region) -> bool {
        if !self.regions.is_suspect(region) {
            return true;
        }
        let entry = self.regions.entry(region);
        parking.at(&mut entry.waiting);
        if !entry.verifying {
            entry.verifying = true;
            self.start_verify(region);
        }
        false
    }

    fn make_active(&mut self, parking: &mut Parking, region: Region) -> bool {
        let has_room = self.regions.has_room();
        let entry = self.regions.entry(region);
        match entry.phase {
            Phase::Active => return true,
            Phase::Activating => parking.at(&mut entry.waiting),
            Phase::Inactive if has_room => {
                parking.at(&mut entry.waiting);
                self.regions.activate(region);
                let lsn = self.log.append(Record::Activate(region));
                self.log_waiters.push_back((lsn, LogWaiter::Activated(region)));
                if self.regions.is_crowded() {
                    self.want_clean(Eager::No);
                }
            }
            Phase::Inactive => {
                parking.at(&mut self.room_waiters);
                self.regions.tidy(region);
                self.want_room();
            }
        }
        false
    }

    /// A write is at the beginning of a region and the region before it was written: the next ones
    /// follow. Records are made for several at once, before a write has to wait for them. A region
    /// that is not written after all costs a check after an unclean stop.
    pub(super) fn look_ahead(&mut self, region: Region) {
        let is_active =
            |at: u32| self.regions.get(Region(at)).is_some_and(|it| it.phase != Phase::Inactive);
        let follows = region.0.checked_sub(1).is_some_and(is_active);
        if !follows || is_active(region.0.saturating_add(AHEAD / 2)) {
            return;
        }
        let end = region_count(self.volume_size()).min(region.0.saturating_add(AHEAD + 1));
        for next in (region.0 + 1..end).map(Region) {
            if self.regions.is_crowded() {
                return;
            }
            if self.regions.activate_ahead(next) {
                let lsn = self.log.append(Record::Activate(next));
                self.log_waiters.push_back((lsn, LogWaiter::Activated(next)));
            }
        }
    }

    /// Has a place for the page's two slots reserved, and for those of the index, so that a full disk is noticed now and not
    /// when the page must be written.
    fn allocate(&mut self, parking: &mut Parking, key: PageKey, index: PageIndex) -> bool {
        let mut is_new = false;
        let waiting = self.allocating.entry(key).or_insert_with(|| {
            is_new = true;
            Vec::new()
        });
        parking.at(waiting);
        if is_new {
            self.cache.page_mut(index).pins += 1;
            let offset = u64::from(key.region.0) * PAIR;
            let op = IoOp::Allocate { offset, len: PAIR };
            self.issue(Purpose::Allocate(key, Part::Map), key.file, op);
        }
        false
    }

    pub(super) fn page_allocated(&mut self, key: PageKey, part: Part, result: IoResult) {
        let waiting = self.allocating.remove(&key).unwrap_or_default();
        let Known::Cached(at) = self.cache.known(key) else {
            // The layer was dropped meanwhile; its writers check again.
            self.ready.extend(waiting);
            return;
        };
        let (file, number) = index_place(key);
        let needs_index = !self.index.has_place(key.file, key.region)
            && !self.index_places.contains(&(file, number));
        match result {
            Ok(_) if needs_index && part == Part::Map => {
                self.allocating.insert(key, waiting);
                let op =
                    IoOp::Allocate { offset: u64::from(number) * index::PAIR, len: index::PAIR };
                self.issue(Purpose::Allocate(key, Part::Index), file, op);
            }
            Ok(_) => {
                self.index_places.insert((file, number));
                let page = self.cache.page_mut(at);
                page.pins -= 1;
                page.allocated = true;
                self.ready.extend(waiting);
            }
            Err(fault) => {
                self.cache.page_mut(at).pins -= 1;
                self.fail_ops(waiting, &data_error(key.file, fault));
            }
        }
    }

    /// Takes a region for background work. False if the operation has to wait.
    pub(super) fn lock(&mut self, parking: &mut Parking, region: Region) -> bool {
        let entry = self.regions.entry(region);
        if entry.locked || entry.writers > 0 {
            entry.wanted = true;
            parking.at(&mut entry.waiting);
            return false;
        }
        entry.wanted = false;
        entry.locked = true;
        entry.candidate = false;
        true
    }

    pub(super) fn unlock(&mut self, region: Region) {
        let entry = self.regions.entry(region);
        if entry.locked {
            entry.locked = false;
            self.wake_region(region);
        }
    }

    /// Wakes the operations that wait for a region, to check it again.
    pub(super) fn wake_region(&mut self, region: Region) {
        let entry = self.regions.entry(region);
        entry.wanted = false;
        let waiting = std::mem::take(&mut entry.waiting);
        self.regions.tidy(region);
        self.ready.extend(waiting);
    }
}

/// The error a guest sees when an operation on its data fails.
pub(super) fn data_error(file: FileId, fault: IoFault) -> RequestError {
    match fault {
        IoFault::NoSpace => RequestError::NoSpace,
        IoFault::Errno(errno) => RequestError::Io { file, errno },
    }
}
