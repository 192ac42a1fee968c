//! Blocks that are not served: those that members have differently without evidence for either
//! version (disputed), and those that no member has as they were written (lost).
//!
//! Disputed blocks are kept in the record: after a restart a read would otherwise be answered by
//! whichever member is asked. They stay disputed until a guest writes them again. Lost blocks are
//! not recorded: their checksums fail again.

use super::notice::Notice;
use super::sync::{Sync, SyncKind};
use super::{Closing, Engine, Phase};
use crate::repl::control::{ByteRange, Record};
use crate::repl::span::{Pieces, Span};
use crate::wire::BLOCK;

/// Ranges that a record or a status holds at most.
const MAX_RANGES: usize = 1024;

#[derive(Debug)]
pub(super) struct Disputes {
    disputed: Pieces,
    lost: Pieces,
    /// The record does not have all of it.
    unrecorded: bool,
}

impl Default for Disputes {
    fn default() -> Self {
        Self { disputed: Pieces::none(BLOCK), lost: Pieces::none(BLOCK), unrecorded: false }
    }
}

impl Disputes {
    pub(super) fn is_disputed(&self, span: Span) -> bool {
        self.disputed.touches(span)
    }

    pub(super) fn disputed(&self) -> Vec<ByteRange> {
        ranges(&self.disputed)
    }

    pub(super) fn lost(&self) -> Vec<ByteRange> {
        ranges(&self.lost)
    }

    /// Every member has the same new content.
    pub(super) fn rewritten(&mut self, span: Span) {
        for block in span.start / BLOCK..span.end.div_ceil(BLOCK) {
            if self.disputed.contains(block) {
                self.disputed.remove(block);
                self.unrecorded = true;
            }
            self.lost.remove(block);
        }
    }

    pub(super) fn are_recorded(&self) -> bool {
        !self.unrecorded
    }

    /// The regions with disputed blocks that a restart would forget.
    pub(super) fn unrecorded_regions(&self, region: u64) -> Pieces {
        let mut regions = Pieces::none(region);
        if self.unrecorded {
            self.disputed().iter().for_each(|it| regions.insert(Span::new(it.offset, it.length)));
        }
        regions
    }

    pub(super) fn is_empty(&self) -> bool {
        self.disputed.is_empty() && self.lost.is_empty()
    }
}

/// Runs of blocks. The last one covers everything that is left when there are too many.
fn ranges(pieces: &Pieces) -> Vec<ByteRange> {
    let mut all: Vec<ByteRange> = Vec::new();
    for block in pieces.iter() {
        let (offset, is_full) = (block * BLOCK, all.len() == MAX_RANGES);
        match all.last_mut() {
            Some(last) if last.offset + last.length == offset => last.length += BLOCK,
            Some(last) if is_full => last.length = offset + BLOCK - last.offset,
            _ => all.push(ByteRange { offset, length: BLOCK }),
        }
    }
    all
}

impl Engine {
    /// Members have different content with good checksums, and there is no evidence which one is
    /// right. A guest that reads there gets an error until it writes the block again.
    pub(super) fn found_disputed(&mut self, id: u64, blocks: &[Span]) {
        let mut fresh: Vec<Span> = Vec::new();
        for block in blocks.iter().filter(|block| !self.disputes.is_disputed(**block)) {
            match fresh.last_mut() {
                Some(last) if last.end == block.start => last.end = block.end,
                _ => fresh.push(*block),
            }
        }
        for span in fresh {
            self.disputes.disputed.insert(span);
            self.disputes.unrecorded = true;
            self.notice(Notice::Ambiguous { offset: span.start, length: span.len() });
        }
        if let Some(Sync { kind: SyncKind::Scrub, .. }) = self.syncs.get(&id)
            && let Some(scrub) = &mut self.scrub
        {
            scrub.bad += blocks.len() as u64;
        }
    }

    /// No member has the blocks as they were written.
    pub(super) fn found_lost(&mut self, blocks: &[Span]) {
        let Some(first) = blocks.first() else { return };
        blocks.iter().for_each(|block| self.disputes.lost.insert(*block));
        let length = blocks.iter().map(|block| block.len()).sum();
        self.notice(Notice::Unreadable { offset: first.start, length });
    }

    /// Takes over what an earlier engine found.
    pub(super) fn know_disputes(&mut self, record: &Record) {
        self.disputes = Disputes::default();
        for range in &record.disputed {
            self.disputes.disputed.insert(Span::new(range.offset, range.length));
        }
    }

    /// The dirty regions are the same on all members: the record need not say more of them than
    /// what is disputed.
    pub(super) fn reconciled_disputes(&mut self) {
        let record = self.control.record();
        self.disputes.unrecorded |= record.is_some_and(|record| !record.reconciling.is_empty());
    }

    /// Writes disputed blocks into the record, when nothing else is to be written there.
    pub(super) fn record_disputes(&mut self) {
        let serves = matches!(self.phase, Phase::Active | Phase::Closing(Closing::Draining));
        if !self.disputes.unrecorded || !serves {
            return;
        }
        let Some(record) = self.control.record() else { return };
        let wanted = self.with_disputes(record);
        match *record == wanted {
            true => self.disputes.unrecorded = false,
            false => self.swap(wanted),
        }
    }

    /// The record with what is known of differences between the members.
    pub(super) fn with_disputes(&self, record: &Record) -> Record {
        let mut record = Record { disputed: self.disputes.disputed(), ..record.clone() };
        if self.unreconciled.is_empty() {
            record.reconciling.clear();
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranges_than_fit_are_covered_by_the_last_one() {
        let mut disputes = Disputes::default();
        let count = MAX_RANGES as u64 + 9;
        (0..count).for_each(|at| disputes.disputed.insert(Span::new(at * 2 * BLOCK, BLOCK)));
        let found = disputes.disputed();
        assert_eq!(found.len(), MAX_RANGES);
        let last = found[MAX_RANGES - 1];
        assert_eq!(last.offset + last.length, (count - 1) * 2 * BLOCK + BLOCK);
    }

    #[test]
    fn blocks_become_ranges_until_they_are_written_again() {
        let mut disputes = Disputes::default();
        for block in [3, 4, 9] {
            disputes.disputed.insert(Span::new(block * BLOCK, BLOCK));
        }
        disputes.lost.insert(Span::new(4 * BLOCK, BLOCK));
        let range = |block, count| ByteRange { offset: block * BLOCK, length: count * BLOCK };
        assert_eq!(disputes.disputed(), [range(3, 2), range(9, 1)]);
        disputes.rewritten(Span::new(4 * BLOCK, 2 * BLOCK));
        assert_eq!(disputes.disputed(), [range(3, 1), range(9, 1)]);
        assert!(disputes.lost().is_empty() && disputes.unrecorded && !disputes.is_empty());
        assert!(!disputes.is_disputed(Span::new(4 * BLOCK, BLOCK)));
    }
}
