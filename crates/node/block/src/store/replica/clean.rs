//! Clean: pages of maps and indexes go to disk, the log gets shorter, regions become inactive.
//!
//! ```text
//! Idle ─want─► Flushing ─► Checkpointing ─► Writing ─► Syncing ─► Ending ─► Copying ─► Idle
//!                                             └── no space: given up ─────────────────►
//! ```
//!
//! The checkpoint's records go into the log before the pages are written. Once the pages are
//! durable, the roots of the indexes follow, and the tail moves to the checkpoint; a power cut in
//! between replays from the old tail, and the old roots say which pages do not count.
//!
//! Pages that will not change soon then get a copy in their other slot, without a sync: the
//! content there does not count any more, and a torn copy does no harm.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::flush::Waiter;
use super::{LogWaiter, Purpose, Replica, own_index};
use crate::store::cache::PageIndex;
use crate::store::files::FileId;
use crate::store::geometry::Region;
use crate::store::index::Entry;
use crate::store::log::Record;
use crate::store::map;
use crate::store::region::{Eager, Phase};
use crate::store::request::{IoFault, IoOp, IoResult, RequestError};

#[derive(Debug, Default)]
pub(super) struct Clean {
    state: CleanerState,
    wanted: Option<Eager>,
    /// Cleans that were begun and that ended, well or not.
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// The last one that gave up for lack of space.
    pub(super) starved: u64,
    pages: Vec<Written>,
    /// Pages of indexes that were written.
    index: Vec<Copy>,
    left: u32,
    failed: bool,
}

/// A page of a map on its way to disk.
#[derive(Debug)]
struct Written {
    index: PageIndex,
    version: u32,
    region: Region,
    copy: Copy,
}

/// The copy for the other slot of a page, written once the page counts.
#[derive(Debug)]
struct Copy {
    file: FileId,
    offset: u64,
    data: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CleanerState {
    #[default]
    Idle,
    Flushing,
    Checkpointing,
    Writing,
    Syncing,
    Ending,
    Copying,
}

impl Clean {
    pub(super) fn is_idle(&self) -> bool {
        self.state == CleanerState::Idle
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }
}

impl Replica {
    /// Asks for a clean that begins from now on. It has ended when `ended` is the number given.
    pub(super) fn want_clean(&mut self, eager: Eager) -> u64 {
        self.clean.wanted = self.clean.wanted.max(Some(eager));
        self.clean.begun + 1
    }

    pub(super) fn advance_clean(&mut self) {
        match self.clean.state {
            CleanerState::Idle if self.verifying.holds_cleans() => {}
            CleanerState::Idle => {
                if let Some(eager) = self.clean.wanted.take() {
                    self.clean.begun += 1;
                    self.clean.state = CleanerState::Flushing;
                    self.clean.failed = false;
                    self.regions.mark_candidates(eager);
                    self.want_flush(Waiter::Clean);
                    self.pump_log();
                }
            }
            CleanerState::Ending => {
                if self.log.tail_is_durable() {
                    self.copy_pages();
                }
            }
            CleanerState::Flushing
            | CleanerState::Checkpointing
            | CleanerState::Writing
            | CleanerState::Syncing
            | CleanerState::Copying => {}
        }
    }

    /// Whether the clean that runs waits for records in the log: they may use the room that others
    /// may not. A few batches are enough, and others that are queued go along.
    pub(super) fn clean_needs_log(&self) -> bool {
        match self.clean.state {
            CleanerState::Flushing => self.flush.is_committing(),
            CleanerState::Checkpointing | CleanerState::Ending => true,
            CleanerState::Idle
            | CleanerState::Writing
            | CleanerState::Syncing
            | CleanerState::Copying => false,
        }
    }

    pub(super) fn clean_flushed(&mut self) {
        debug_assert!(self.clean.state == CleanerState::Flushing);
        self.clean.state = CleanerState::Checkpointing;
        let work = self.meta.body.work.as_ref().map_or(0, |work| work.no);
        let cursor = self.work.logged_cursor();
        self.log.append(Record::Checkpoint { work, cursor });
        let active: Vec<Region> = self.regions.active().map(|(region, _)| region).collect();
        for region in active {
            self.log.append(Record::Activate(region));
        }
        for (file, blocks) in &self.counts {
            self.log.append(Record::Count { file: *file, blocks: *blocks });
            self.log.append(Record::Root { file: *file, root: self.index.root(*file) });
        }
        if !self.super_unsynced {
            self.log.append(Record::SuperBlock { seq: self.meta.seq });
        }
        if let Some(marks) = self.marks {
            self.log.append(Record::Marks(marks));
        }
        self.log_waiters.push_back((self.log.appended(), LogWaiter::Checkpoint));
    }

    pub(super) fn checkpoint_begun(&mut self) {
        debug_assert!(self.clean.state == CleanerState::Checkpointing);
        self.clean.state = CleanerState::Writing;
        let clean = self.index.next_clean();
        let mut entries = Vec::new();
        for index in self.cache.unwritten() {
            let owner = self.owner(self.cache.page(index).key);
            let page = self.cache.page_mut(index);
            page.pins += 1;
            let (file, region, seq) = (page.key.file, page.key.region, page.seq + 1);
            let data = Bytes::from(map::encode(owner, seq, clean, &page.committed, &page.crcs));
            entries.push((
                owner.file,
                region,
                Entry::new(seq, map::crc_of(&data), &page.committed),
            ));
            let offset = map::offset(region, seq + 1);
            let copy = Copy { file, offset, data: data.clone() };
            self.clean.pages.push(Written { index, version: page.version, region, copy });
            self.write_page(file, map::offset(region, seq), data);
        }
        for due in self.index.begin(self.meta.tag(), entries) {
            let (file, data) = (own_index(due.file), Bytes::from(due.data));
            self.clean.index.push(Copy { file, offset: due.copy, data: data.clone() });
            self.write_page(file, due.offset, data);
        }
        if self.clean.left == 0 {
            self.sync_maps();
        }
    }

    fn write_page(&mut self, file: FileId, offset: u64, data: Bytes) {
        self.clean.left += 1;
        let op = IoOp::Write { offset, data, durable: false };
        self.issue(Purpose::CleanWrite(file), file, op);
    }

    pub(super) fn clean_written(&mut self, file: FileId, result: IoResult) {
        match result {
            Ok(_) => {}
            Err(IoFault::NoSpace) => self.clean.failed = true,
            Err(fault) => {
                self.cannot_write(file, fault);
                return;
            }
        }
        self.clean.left -= 1;
        if self.clean.left == 0 {
            if self.clean.failed { self.give_up_clean() } else { self.sync_maps() }
        }
    }

    /// The slots that were written hold versions that are not used; the next clean writes them
    /// again.
    fn give_up_clean(&mut self) {
        for written in std::mem::take(&mut self.clean.pages) {
            self.cache.page_mut(written.index).pins -= 1;
        }
        self.clean.index.clear();
        self.index.abandon();
        self.clean.starved = self.clean.begun;
        let waiting = std::mem::take(&mut self.room_waiters);
        self.fail_ops(waiting, &RequestError::NoSpace);
        self.clean.ended = self.clean.begun;
        self.clean.state = CleanerState::Idle;
        self.clean_has_ended();
    }

    fn sync_maps(&mut self) {
        self.clean.state = CleanerState::Syncing;
        let pages = self.clean.pages.iter().map(|written| &written.copy);
        let files: BTreeSet<FileId> =
            pages.chain(&self.clean.index).map(|page| page.file).collect();
        self.clean.left = files.len() as u32;
        if files.is_empty() {
            self.maps_are_durable();
        }
        for file in files {
            self.issue(Purpose::CleanSync(file), file, IoOp::Sync);
        }
    }

    pub(super) fn clean_synced(&mut self, file: FileId, result: IoResult) {
        if let Err(fault) = result {
            self.cannot_sync(file, fault);
            return;
        }
        self.clean.left -= 1;
        if self.clean.left == 0 {
            self.maps_are_durable();
        }
    }

    fn maps_are_durable(&mut self) {
        let clean = self.index.next_clean();
        for written in &self.clean.pages {
            let page = self.cache.page_mut(written.index);
            page.pins -= 1;
            page.seq += 1;
            page.clean = clean;
            page.written = written.version;
        }
        for file in self.index.commit() {
            self.log.append(Record::Root { file, root: self.index.root(file) });
        }
        for region in self.regions.candidates() {
            if self.is_on_disk(region) {
                self.log.append(Record::Deactivate(region));
                self.regions.deactivate(region);
                self.release_region(region);
            }
        }
        self.log.end_checkpoint();
        self.clean.state = CleanerState::Ending;
    }

    /// Whether every page of a region is on disk as it is in memory.
    fn is_on_disk(&mut self, region: Region) -> bool {
        let layers = &self.meta.body.layers.layers;
        let files: Vec<_> = layers.iter().map(|layer| super::own_map(layer.file)).collect();
        files.into_iter().all(|file| {
            match self.cache.known(crate::store::cache::PageKey { file, region }) {
                crate::store::cache::Known::Cached(index) => !self.cache.page(index).is_dirty(),
                _ => true,
            }
        })
    }

    /// The roots are durable: so is what the pages replace, and their other slots are free.
    fn copy_pages(&mut self) {
        self.clean.state = CleanerState::Copying;
        self.clean.left = 0;
        let pages = std::mem::take(&mut self.clean.pages).into_iter();
        let settled = pages.filter(|written| !self.is_active(written.region));
        let mut copies: Vec<Copy> = settled.map(|written| written.copy).collect();
        copies.append(&mut self.clean.index);
        // A layer may have been dropped since.
        copies.retain(|copy| match copy.file {
            FileId::Map(_, file) | FileId::Index(_, file) => {
                self.meta.body.layers.by_file(file).is_some()
            }
            _ => false,
        });
        for Copy { file, offset, data } in copies {
            self.clean.left += 1;
            let op = IoOp::Write { offset, data, durable: false };
            self.issue(Purpose::CleanCopy, file, op);
        }
        if self.clean.left == 0 {
            self.end_clean();
        }
    }

    /// A copy that could not be written is missed only if the page is damaged.
    pub(super) fn clean_copied(&mut self) {
        self.clean.left -= 1;
        if self.clean.left == 0 {
            self.end_clean();
        }
    }

    fn end_clean(&mut self) {
        self.clean.state = CleanerState::Idle;
        self.clean.ended = self.clean.begun;
        self.clean_has_ended();
        if self.regions.has_room() {
            let waiting = std::mem::take(&mut self.room_waiters);
            self.ready.extend(waiting);
        } else {
            self.want_room();
        }
    }

    /// A request waits for a region to become inactive. If only the caller can bring that about,
    /// by saying that a region is settled, there is nothing to do until then.
    pub(super) fn want_room(&mut self) {
        if !self.room_waiters.is_empty() && self.regions.may_become_inactive() {
            self.want_clean(Eager::No);
        }
    }

    /// Whether a region's record is durable: for assertions.
    pub(super) fn is_active(&self, region: Region) -> bool {
        self.regions.get(region).is_some_and(|entry| entry.phase == Phase::Active)
    }
}
