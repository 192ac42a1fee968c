//! Clean: pages of maps go to disk, the log gets shorter, regions become inactive.
//!
//! ```text
//! Idle ─want─► Flushing ─► Checkpointing ─► Writing pages ─► Syncing maps ─► Ending ─► Idle
//!                                               └──── no space: given up ─────────────►
//! ```
//!
//! The checkpoint's records go into the log before the pages are written, and the tail moves to
//! them after the maps are synced; a power cut in between replays from the old tail.

use std::collections::BTreeSet;

use super::flush::Waiter;
use super::{LogWaiter, Purpose, Replica};
use crate::store::cache::PageIndex;
use crate::store::files::FileId;
use crate::store::geometry::Region;
use crate::store::log::Record;
use crate::store::map;
use crate::store::region::{Eager, Phase};
use crate::store::request::{IoFault, IoOp, IoResult, RequestError};

#[derive(Debug, Default)]
pub(super) struct Clean {
    state: State,
    wanted: Option<Eager>,
    /// Cleans that were begun and that ended, well or not.
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// The last one that gave up for lack of space.
    pub(super) starved: u64,
    pages: Vec<(PageIndex, u32)>,
    left: u32,
    failed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Flushing,
    Checkpointing,
    Writing,
    Syncing,
    Ending,
}

impl Replica {
    /// Asks for a clean that begins from now on. It has ended when `ended` is the number given.
    pub(super) fn want_clean(&mut self, eager: Eager) -> u64 {
        self.clean.wanted = self.clean.wanted.max(Some(eager));
        self.clean.begun + 1
    }

    pub(super) fn advance_clean(&mut self) {
        match self.clean.state {
            State::Idle => {
                if let Some(eager) = self.clean.wanted.take() {
                    self.clean.begun += 1;
                    self.clean.state = State::Flushing;
                    self.clean.failed = false;
                    self.regions.mark_candidates(eager);
                    self.want_flush(Waiter::Clean);
                    self.pump_log();
                }
            }
            State::Ending => {
                if self.log.tail_is_durable() {
                    self.end_clean();
                }
            }
            State::Flushing | State::Checkpointing | State::Writing | State::Syncing => {}
        }
    }

    /// Whether the clean that runs waits for records in the log: they may use the room that others
    /// may not. A few batches are enough, and others that are queued go along.
    pub(super) fn clean_needs_log(&self) -> bool {
        match self.clean.state {
            State::Flushing => self.flush.is_committing(),
            State::Checkpointing | State::Ending => true,
            State::Idle | State::Writing | State::Syncing => false,
        }
    }

    pub(super) fn clean_flushed(&mut self) {
        debug_assert!(self.clean.state == State::Flushing);
        self.clean.state = State::Checkpointing;
        let work = self.meta.body.work.as_ref().map_or(0, |work| work.no);
        let cursor = self.work.logged_cursor();
        self.log.append(Record::Checkpoint { work, cursor });
        let active: Vec<Region> = self.regions.active().map(|(region, _)| region).collect();
        for region in active {
            self.log.append(Record::Activate(region));
        }
        for (file, blocks) in &self.counts {
            self.log.append(Record::Count { file: *file, blocks: *blocks });
        }
        self.log_waiters.push_back((self.log.appended(), LogWaiter::Checkpoint));
    }

    pub(super) fn checkpoint_begun(&mut self) {
        debug_assert!(self.clean.state == State::Checkpointing);
        self.clean.state = State::Writing;
        let pages = self.cache.unwritten();
        self.clean.left = pages.len() as u32;
        for index in pages {
            let owner = self.owner(self.cache.page(index).key);
            let page = self.cache.page_mut(index);
            page.pins += 1;
            let seq = page.seq + 1;
            let data = map::encode(owner, seq, &page.committed, &page.crcs);
            let (file, version) = (page.key.file, page.version);
            let offset = map::offset(page.key.region, seq);
            self.clean.pages.push((index, version));
            let op = IoOp::Write { offset, data: data.into(), durable: false };
            self.issue(Purpose::CleanWrite(index), file, op);
        }
        if self.clean.left == 0 {
            self.sync_maps();
        }
    }

    pub(super) fn clean_written(&mut self, index: PageIndex, result: IoResult) {
        let file = self.cache.page(index).key.file;
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

    /// The slots that were written hold versions nobody counts on; the next clean writes them
    /// again.
    fn give_up_clean(&mut self) {
        for (index, _) in std::mem::take(&mut self.clean.pages) {
            self.cache.page_mut(index).pins -= 1;
        }
        self.clean.starved = self.clean.begun;
        let waiting = std::mem::take(&mut self.room_waiters);
        self.fail_ops(waiting, &RequestError::NoSpace);
        self.clean.ended = self.clean.begun;
        self.clean.state = State::Idle;
    }

    fn sync_maps(&mut self) {
        self.clean.state = State::Syncing;
        let pages = self.clean.pages.iter();
        let files: BTreeSet<FileId> =
            pages.map(|(index, _)| self.cache.page(*index).key.file).collect();
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
        for (index, version) in std::mem::take(&mut self.clean.pages) {
            let page = self.cache.page_mut(index);
            page.pins -= 1;
            page.seq += 1;
            page.written = version;
        }
        for region in self.regions.candidates() {
            if self.is_on_disk(region) {
                self.log.append(Record::Deactivate(region));
                self.regions.deactivate(region);
            }
        }
        self.log.end_checkpoint();
        self.clean.state = State::Ending;
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

    fn end_clean(&mut self) {
        self.clean.state = State::Idle;
        self.clean.ended = self.clean.begun;
        if self.regions.has_room() {
            let waiting = std::mem::take(&mut self.room_waiters);
            self.ready.extend(waiting);
        } else {
            self.want_room();
        }
    }

    /// Somebody waits for a region to become inactive. If only the caller can bring that about,
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
