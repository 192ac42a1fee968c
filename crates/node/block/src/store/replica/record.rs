//! Recording changes for the process that follows, before they are answered.
//!
//! ```text
//! presence changes ─► Recent: due ─► written to the file `recent` ─► whoever waits goes on
//! ```
//!
//! A write of blocks that the layer had already changes no presence and waits for nothing.

use super::{Purpose, Replica, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::{FileId, Place};
use crate::store::recent::{self, Due, PageName, Record, Ticket};
use crate::store::request::{IoOp, IoResult};
use crate::store::slab::Key;

/// How the changes of an operation become safe from the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safe {
    /// There are none, or they are already.
    Now,
    /// When this is recorded.
    Recorded(Ticket),
    /// By a flush: there was no room for a record.
    Flushed,
}

impl Safe {
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Flushed, _) | (_, Self::Flushed) => Self::Flushed,
            (Self::Recorded(a), Self::Recorded(b)) => Self::Recorded(a.max(b)),
            (Self::Now, other) | (other, Self::Now) => other,
        }
    }
}

impl Replica {
    /// Notes that `current` of a page differs from what was committed.
    pub(super) fn mark_changed(&mut self, index: PageIndex) -> Safe {
        let page = self.cache.page_mut(index);
        if !page.changed {
            page.changed = true;
            self.changed.push(index);
        }
        let FileId::Map(Place::Own, file) = page.key.file else {
            unreachable!("pages of a base do not change");
        };
        let name = (file, page.key.region);
        let Self { recent, cache, .. } = self;
        let is_settled = |(file, region): PageName| {
            let key = PageKey { file: own_map(file), region };
            match cache.known(key) {
                Known::Cached(index) => {
                    let page = cache.page(index);
                    !page.changed && !page.flushing
                }
                _ => true,
            }
        };
        if recent.changed(name, is_settled) {
            Safe::Recorded(recent.ticket())
        } else {
            Safe::Flushed
        }
    }

    /// Whether changes are recorded; if not, the operation is parked until they may be.
    pub(super) fn wait_recorded(&mut self, upto: Ticket, op: Key) -> bool {
        let recorded = self.recent.is_recorded(upto);
        if !recorded {
            self.record_waiters.push(op);
        }
        recorded
    }

    /// Writes the next record if there is one.
    pub(super) fn pump_records(&mut self) {
        if self.verifying.holds_records() {
            return;
        }
        let Some(Due { page, ticket, offset }) = self.recent.next_due() else { return };
        let (file, region) = page;
        let presence = match self.cache.known(PageKey { file: own_map(file), region }) {
            Known::Cached(index) => self.cache.page(index).current,
            // The layer is gone; its number is not requested again.
            _ => crate::store::map::Presence::default(),
        };
        let record = Record { ticket, page, presence };
        let places = self.recent.places();
        let data = recent::encode(self.boot, self.meta.tag(), &record, places).into();
        let op = IoOp::Write { offset, data, durable: false };
        self.issue(Purpose::Record, FileId::Recent, op);
    }

    pub(super) fn record_written(&mut self, result: IoResult) {
        if let Err(fault) = result {
            self.cannot_write(FileId::Recent, fault);
            return;
        }
        self.recent.written();
        let waiting = std::mem::take(&mut self.record_waiters);
        self.ready.extend(waiting);
        self.flush_recorded();
    }
}
