//! Collects records and decides when which page is written. Does no I/O itself.
//!
//! ```text
//!          append                    written
//!   Idle ────────► next_batch ─► Writing ────────► Idle
//!                                   │ append: waits for the next batch
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{Header, PAGE, PLACE, ROOM, Record, encode_page};

/// Counts records; a record is durable when its number is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lsn(pub u64);

/// The part of the ring that only a checkpoint may use: without it nothing would ever be free
/// again.
const RESERVE: u64 = 4;

/// Whether a checkpoint waits for the records that are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Usual,
    Checkpoint,
}

#[derive(Debug)]
pub(crate) struct LogWriter {
    pages: u64,
    tag: u64,
    /// Records not yet in a page.
    queue: VecDeque<Record>,
    appended: Lsn,
    durable: Lsn,
    /// The sequence of the next page.
    next: u64,
    last_crc: u32,
    /// Pages before this one are durable.
    durable_next: u64,
    /// Where replay begins if the next page is the last.
    tail: u64,
    /// Where replay begins if no further page becomes durable. Pages from here on are not
    /// overwritten.
    durable_tail: u64,
    /// A page is wanted even if there are no records, to make the tail durable.
    force: bool,
    /// The page of the last checkpoint's first record.
    checkpoint: Option<u64>,
    writing: Option<Writing>,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    left: u32,
    upto: Lsn,
    tail: u64,
}

/// Pages to be written; two pieces if the ring's end lies between.
#[derive(Debug)]
pub(crate) struct Batch {
    pub writes: Vec<(u64, Bytes)>,
}

impl LogWriter {
    pub(crate) fn new(pages: u32, tag: u64, next: u64, tail: u64, last_crc: u32) -> Self {
        Self {
            pages: u64::from(pages),
            tag,
            queue: VecDeque::new(),
            appended: Lsn(0),
            durable: Lsn(0),
            next,
            last_crc,
            durable_next: next,
            tail,
            durable_tail: tail,
            force: false,
            checkpoint: None,
            writing: None,
        }
    }

    /// Adds a record. It is durable when [`Self::durable`] reaches the number returned.
    pub(crate) fn append(&mut self, record: Record) -> Lsn {
        self.queue.push_back(record);
        self.appended.0 += 1;
        self.appended
    }

    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(crate) fn appended(&self) -> Lsn {
        self.appended
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_none() && self.queue.is_empty() && !self.force
    }

    /// The sequence of the next page, for a clean close.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next
    }

    /// The sequence of the first page that is not durable.
    pub(crate) fn durable_next(&self) -> u64 {
        self.durable_next
    }

    /// The pages that a replay would need: none of them is written while no checkpoint ends.
    pub(crate) fn live(&self) -> std::ops::Range<u64> {
        self.durable_tail..self.durable_next
    }

    /// Pages of the ring.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether it is time for a checkpoint.
    pub(crate) fn is_half_full(&self) -> bool {
        self.next - self.durable_tail >= self.pages / 2
    }

    /// Records before the last checkpoint are no longer needed. The next batch says so.
    pub(crate) fn end_checkpoint(&mut self) {
        if let Some(seq) = self.checkpoint.take() {
            debug_assert!(seq >= self.tail);
            self.tail = seq;
            self.force = true;
        }
    }

    /// The tail that the last page on disk names.
    pub(crate) fn tail_is_durable(&self) -> bool {
        self.durable_tail == self.tail
    }

    /// Whether records wait for a checkpoint to make room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.writing.is_none() && !self.queue.is_empty() && self.room(Need::Usual) == 0
    }

    /// Pages that may be written now.
    fn room(&self, need: Need) -> u64 {
        let free = self.pages - (self.next - self.durable_tail);
        match need {
            Need::Usual => free.saturating_sub(self.pages / RESERVE),
            Need::Checkpoint => free,
        }
    }

    /// The next pages to write, if there is something to write and room for it.
    pub(crate) fn next_batch(&mut self, need: Need) -> Option<Batch> {
        if self.writing.is_some() || (self.queue.is_empty() && !self.force) {
            return None;
        }
        let need = if self.force { Need::Checkpoint } else { need };
        let limit = self.room(need);
        if limit == 0 {
            return None;
        }
        let first = self.next;
        let mut pages: Vec<BytesMut> = Vec::new();
        let mut upto = self.durable.0;
        let mut records = Vec::with_capacity(ROOM);
        let taken_before = self.appended.0 - self.queue.len() as u64;
        let mut taken = taken_before;
        while (pages.len() as u64) < limit {
            records.clear();
            while let Some(record) = self.queue.front() {
                let begins = matches!(record, Record::Checkpoint { .. });
                if records.len() + record.size() > ROOM || (begins && !records.is_empty()) {
                    break;
                }
                if begins {
                    self.checkpoint = Some(self.next);
                }
                record.encode(&mut records);
                self.queue.pop_front();
                taken += 1;
            }
            if records.is_empty() && !(self.force && pages.is_empty()) {
                break;
            }
            pages.push(self.page(first, &records));
            upto = upto.max(taken);
        }
        self.force = false;
        let writes = self.cut(first, pages);
        let upto = Lsn(upto);
        self.writing = Some(Writing { left: writes.len() as u32, upto, tail: self.tail });
        Some(Batch { writes })
    }

    fn page(&mut self, batch: u64, records: &[u8]) -> BytesMut {
        let header =
            Header { seq: self.next, batch, tail: self.tail, tag: self.tag, before: self.last_crc };
        debug_assert!(header.seq - self.durable_tail < self.pages, "the log overtook its tail");
        let mut page = BytesMut::zeroed(PAGE);
        self.last_crc = encode_page(header, records, &mut page);
        self.next += 1;
        page
    }

    /// Joins neighbouring pages, each with its copy.
    fn cut(&self, first: u64, pages: Vec<BytesMut>) -> Vec<(u64, Bytes)> {
        let mut writes: Vec<(u64, BytesMut)> = Vec::with_capacity(2);
        for (seq, page) in (first..).zip(pages) {
            let offset = (seq % self.pages) * PLACE as u64;
            let follows = |write: &(u64, BytesMut)| write.0 + write.1.len() as u64 == offset;
            if !writes.last().is_some_and(follows) {
                writes.push((offset, BytesMut::with_capacity(PLACE)));
            }
            let (_, data) = writes.last_mut().expect("one was just pushed");
            data.extend_from_slice(&page);
            data.extend_from_slice(&page);
        }
        writes.into_iter().map(|(offset, data)| (offset, data.freeze())).collect()
    }

    /// One of the writes of the batch is durable.
    pub(crate) fn written(&mut self) {
        let writing = self.writing.as_mut().expect("a batch is being written");
        writing.left -= 1;
        if writing.left == 0 {
            self.durable = writing.upto;
            self.durable_tail = writing.tail;
            self.durable_next = self.next;
            self.writing = None;
        }
    }
}
