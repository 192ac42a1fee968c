//! Metadata of members, verified during a scrub: some regions at a time, before their data.
//!
//! A member compares what is on its disk with its memory, and repairs it. A member that cannot
//! repair it stops if others are in sync, leaves the in-sync set, and is rebuilt. So members are
//! asked one after the other: whether others are in sync is known only when the one before has
//! answered. A member that is alone reports the damage, and serves on.

use super::guest::length;
use super::notice::{MemberFault, Notice};
use super::ops::{OneResult, Owner};
use super::scrub::ScrubStep;
use super::{Engine, Phase};
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{MetadataReport, Refusal, Reply, Request};

/// The version of the protocol that knows of metadata.
const METADATA_SINCE: u16 = 4;
/// Regions whose metadata a member verifies in one request.
const REGIONS: u64 = 32;

/// Members whose metadata of a range is verified.
#[derive(Debug)]
pub(super) struct MetadataScrub {
    span: Span,
    left: Slots,
}

impl Engine {
    /// Verifies the metadata of the region that comes next, unless that was done. Gives whether it
    /// is under way.
    pub(super) fn begin_metadata(&mut self) -> bool {
        let left = self.slots(|it| it.is_readable() && it.version >= METADATA_SINCE);
        let (region, size) = (self.region, self.size);
        let Some(scrub) = &mut self.scrub else { return false };
        if scrub.next < scrub.verified {
            return false;
        }
        let span = Span::new(scrub.next * region, REGIONS * region).clipped(size);
        scrub.verified = scrub.next + REGIONS;
        scrub.step = ScrubStep::Metadata(MetadataScrub { span, left });
        self.verify_next();
        let step = self.scrub.as_ref().map(|scrub| &scrub.step);
        matches!(step, Some(ScrubStep::Metadata(_)))
    }

    fn verify_next(&mut self) {
        let readable = self.readable();
        let is_settled = self.unreconciled.is_empty();
        let Some(scrub) = &mut self.scrub else { return };
        let ScrubStep::Metadata(metadata) = &mut scrub.step else { return };
        let next = metadata.left.and(readable).iter().next();
        let Some(slot) = next.filter(|_| self.phase == Phase::Active) else {
            scrub.step = ScrubStep::Idle;
            return;
        };
        metadata.left.remove(slot);
        let span = metadata.span;
        // Others that may lack writes are no reason to stop.
        let others = readable.without(Slots::one(slot));
        let alone = others.is_empty() || !is_settled;
        let request = Request::ScrubMetadata { offset: span.start, length: length(span), alone };
        self.issue_one(request, slot, Owner::MetadataScrub(slot));
    }

    pub(super) fn metadata_scrubbed(&mut self, slot: usize, result: OneResult) {
        match result {
            Ok(Reply::Metadata(report)) => self.note_metadata(slot, report),
            // It stops, or its disk does not work.
            Err(Some(why @ Refusal::Io)) if self.phase == Phase::Active => {
                self.member_fault(slot, MemberFault::Refused(why));
            }
            Ok(_) | Err(_) => {}
        }
        self.verify_next();
    }

    fn note_metadata(&mut self, slot: usize, report: MetadataReport) {
        let replica = self.members[slot].id;
        let MetadataReport { repaired, lost_pages, .. } = report;
        if repaired > 0 || lost_pages > 0 {
            self.notice(Notice::MetadataRepaired { replica, repaired, lost_pages });
        }
        for damage in &report.left {
            self.notice(Notice::MetadataDamaged { replica, damage: damage.clone() });
        }
        if let Some(scrub) = &mut self.scrub {
            scrub.metadata.add(replica, report);
        }
    }
}
