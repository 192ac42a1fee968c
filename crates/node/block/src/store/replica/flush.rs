//! Flush: written data becomes durable, in the order that keeps the map correct.
//!
//! ```text
//!        want                       synced               recorded               log durable
//! Idle ───────► Syncing data files ───────► Recording ────► Committing presence ────────────► Idle
//!                                                     └─── nothing to commit ────────────────►
//! ```
//!
//! One flush runs at a time. Those who ask while it runs share the next one: a write that was
//! answered after the sync began is not covered by it. Presence and checksums are recorded for the
//! process that follows before the log is written: [`super::record`], [`super::sum`].

use std::collections::{BTreeSet, VecDeque};

use super::{LogWaiter, Purpose, Replica, own_data};
use crate::ids::FlushMarks;
use crate::store::cache::PageIndex;
use crate::store::files::{FileId, FileNo, Place};
use crate::store::geometry::Region;
use crate::store::log::{Lsn, Need, Record};
use crate::store::recent::Ticket;
use crate::store::region::Eager;
use crate::store::request::{IoOp, IoResult, Reply, RequestId};
use crate::store::slab::Key;

#[derive(Debug, Default)]
pub(super) struct Flush {
    state: FlushState,
    /// The number of the flush that runs, or ran last.
    cycle: u64,
    /// The requests that wait for each flush.
    waiters: VecDeque<(u64, Waiter)>,
    pages: Vec<PageIndex>,
    files: BTreeSet<FileNo>,
    /// The last change that it covers.
    upto: Ticket,
    /// The last change of recorded checksums that it covers.
    sums: Ticket,
    /// The flush marks that become known with the next flush, and with the one that runs.
    next_marks: Option<FlushMarks>,
    marks: Option<FlushMarks>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum FlushState {
    #[default]
    Idle,
    Syncing {
        left: u32,
    },
    Recording,
    Committing,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Request(RequestId),
    Op(Key),
    Clean,
}

impl Flush {
    pub(super) fn is_committing(&self) -> bool {
        self.state == FlushState::Committing
    }

    /// Whether a sync of the file is in flight.
    pub(super) fn is_syncing(&self, file: FileNo) -> bool {
        matches!(self.state, FlushState::Syncing { .. }) && self.files.contains(&file)
    }

    pub(super) fn take_requests(&mut self) -> Vec<RequestId> {
        let waiters = std::mem::take(&mut self.waiters).into_iter();
        waiters
            .filter_map(|(_, waiter)| match waiter {
                Waiter::Request(id) => Some(id),
                Waiter::Op(_) | Waiter::Clean => None,
            })
            .collect()
    }
}

impl Replica {
    /// Asks for a flush of everything that has been answered so far.
    pub(super) fn want_flush(&mut self, waiter: Waiter) {
        self.flush.waiters.push_back((self.flush.cycle + 1, waiter));
        if self.flush.state == FlushState::Idle {
            self.begin_flush();
        }
    }

    /// The next flush makes these durable, after what it covers.
    pub(super) fn note_marks(&mut self, marks: FlushMarks) {
        let noted = self.flush.next_marks.unwrap_or_default();
        self.flush.next_marks = Some(noted.merged(marks));
    }

    fn begin_flush(&mut self) {
        self.flush.cycle += 1;
        self.flush.marks = self.flush.next_marks.take();
        self.flush.pages = std::mem::take(&mut self.changed);
        for at in 0..self.flush.pages.len() {
            let page = self.cache.page_mut(self.flush.pages[at]);
            debug_assert!(!page.flushing);
            page.target = page.current;
            page.changed = false;
            page.flushing = true;
        }
        let files = std::mem::take(&mut self.unsynced);
        self.flush.files.clone_from(&files);
        // The log must not speak of a layer that the super block does not have.
        let cut = std::mem::take(&mut self.super_unsynced);
        let files = files.into_iter().map(own_data).chain(cut.then_some(FileId::Super));
        let files: Vec<FileId> = files.collect();
        self.flush.state = FlushState::Syncing { left: files.len() as u32 };
        self.flush.upto = self.recent.ticket();
        self.sums.begin_flush();
        if files.is_empty() {
            self.flush_data_synced();
        }
        for file in files {
            self.issue(Purpose::FlushSync(file), file, IoOp::Sync);
        }
    }

    pub(super) fn flush_synced(&mut self, file: FileId, result: IoResult) {
        if let Err(fault) = result {
            // The kernel may have dropped what it could not write: it is not known what is on disk.
            self.cannot_sync(file, fault);
            return;
        }
        let FlushState::Syncing { left } = &mut self.flush.state else {
            unreachable!("a sync without a flush");
        };
        *left -= 1;
        if *left == 0 {
            self.flush_data_synced();
        }
    }

    fn flush_data_synced(&mut self) {
        self.flush.state = FlushState::Recording;
        self.flush.sums = self.close_blocks();
        self.pump_sums();
        self.flush_recorded();
    }

    /// A record has been written. The committed state must not be newer than the recorded one, or
    /// the next process would take the record for the truth.
    pub(super) fn flush_recorded(&mut self) {
        if self.flush.state == FlushState::Recording
            && self.recent.is_recorded(self.flush.upto)
            && self.sums.is_recorded(self.flush.sums)
        {
            self.commit_presence();
        }
    }

    /// The data is durable: its presence may follow.
    fn commit_presence(&mut self) {
        let mut last: Option<Lsn> = None;
        for at in 0..self.flush.pages.len() {
            let page = self.cache.page(self.flush.pages[at]);
            if page.target == page.committed {
                continue;
            }
            let (file, region) = own_page(page.key.file, page.key.region);
            let before = page.committed.data.len() as i16 + page.lost_blocks as i16;
            let delta = page.target.data.len() as i16 - before;
            let record = Record::Presence { file, region, delta, presence: page.target };
            last = Some(self.log.append(record));
        }
        if let Some(marks) = self.flush.marks {
            let marks = self.marks.unwrap_or_default().merged(marks);
            self.flush.marks = Some(marks);
            if self.marks != Some(marks) {
                last = Some(self.log.append(Record::Marks(marks)));
            }
        }
        self.flush.state = FlushState::Committing;
        match last {
            Some(lsn) => self.log_waiters.push_back((lsn, LogWaiter::Flush)),
            None => self.finish_flush(),
        }
    }

    /// The presence is durable too.
    pub(super) fn finish_flush(&mut self) {
        debug_assert!(self.flush.state == FlushState::Committing);
        self.marks = self.flush.marks.take().or(self.marks);
        for index in std::mem::take(&mut self.flush.pages) {
            let page = self.cache.page_mut(index);
            page.flushing = false;
            if page.target == page.committed {
                continue;
            }
            let (file, region) = own_page(page.key.file, page.key.region);
            let (old, new) = (page.committed.data, page.target.data);
            page.committed = page.target;
            page.version = page.version.wrapping_add(1);
            let count = self.counts.entry(file).or_default();
            // The count of a replica that was damaged may be anything.
            let before = old.len() + u32::from(std::mem::take(&mut page.lost_blocks));
            *count = (*count + u64::from(new.len())).saturating_sub(u64::from(before));
            if !old.without(&new).is_empty() && self.to_punch.len() < super::verify::MAX_PUNCHES {
                self.to_punch.insert((file, region));
            }
        }
        self.flush.state = FlushState::Idle;
        let cycle = self.flush.cycle;
        while let Some((wanted, waiter)) = self.flush.waiters.front().copied()
            && wanted <= cycle
        {
            self.flush.waiters.pop_front();
            match waiter {
                Waiter::Request(id) => self.reply(id, Ok(Reply::Done)),
                Waiter::Op(key) => self.ready.push_back(key),
                Waiter::Clean => self.clean_flushed(),
            }
        }
        if !self.flush.waiters.is_empty() && self.flush.state == FlushState::Idle {
            self.begin_flush();
        }
    }

    /// Writes the next batch of the log if there is one.
    pub(super) fn pump_log(&mut self) {
        let need = if self.clean_needs_log() { Need::Checkpoint } else { Need::Usual };
        if self.log.is_blocked() && self.clean.ended == self.clean.begun {
            self.want_clean(Eager::No);
        }
        if let Some(batch) = self.log.next_batch(need) {
            for (offset, data) in batch.writes {
                let op = IoOp::Write { offset, data, durable: true };
                self.issue(Purpose::Log, FileId::Log, op);
            }
        }
    }

    pub(super) fn log_written(&mut self, result: IoResult) {
        if let Err(fault) = result {
            self.cannot_write(FileId::Log, fault);
            return;
        }
        self.log.written();
        self.mark_log();
        let durable = self.log.durable();
        while let Some((lsn, waiter)) = self.log_waiters.front().copied()
            && lsn <= durable
        {
            self.log_waiters.pop_front();
            match waiter {
                LogWaiter::Activated(region) => {
                    let waiting = self.regions.activated(region);
                    self.ready.extend(waiting);
                }
                LogWaiter::Flush => self.finish_flush(),
                LogWaiter::Checkpoint => self.checkpoint_begun(),
                LogWaiter::Op(key) => self.ready.push_back(key),
            }
        }
        // A clean that runs moves the tail when it ends.
        if self.log.is_half_full() && self.clean.ended == self.clean.begun {
            self.want_clean(Eager::No);
        }
    }
}

/// Only own layers change.
fn own_page(file: FileId, region: Region) -> (FileNo, Region) {
    let FileId::Map(Place::Own, file) = file else {
        unreachable!("pages of a base do not change");
    };
    (file, region)
}
