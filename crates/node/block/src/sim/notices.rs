//! Notices of engines, counted and checked.

use super::oracle::SECTOR;
use super::world::World;
use crate::ids::Generation;
use crate::repl::control::ByteRange;
use crate::repl::engine::{Fault, Notice};
use crate::wire::BLOCK;

impl World {
    pub(crate) fn notice(&mut self, server: usize, notice: Notice) {
        self.trace(|| format!("engine {server}: {notice:?}"));
        match &notice {
            Notice::Active { generation, .. } => {
                if *generation > self.served.0 {
                    // A guest that was served since this engine was started has lost its disk to
                    // another that begins anew.
                    let served = self.served.0 > Generation(0) && !self.guest_is_dead;
                    if let Some(since) = self.servers[server].fresh.filter(|_| served) {
                        self.oracle.guest_crashed(since);
                    }
                    self.served = (*generation, self.now);
                }
                self.outcome.activations += 1;
                self.guest_is_dead = false;
                // One that lost power on its way into the set counts as one of it.
                let isr = &self.record.record.isr;
                let in_sync = self.hosts.iter().filter(|it| isr.contains(&it.replica));
                in_sync.filter_map(|it| it.power_cut).for_each(|at| self.oracle.power_cut(at));
                self.oracle.activated();
            }
            Notice::StaleReplica { replica, why } => {
                self.outcome.stale += 1;
                if !self.plan.faults.rollback && !self.backup.is_restored() {
                    self.wrong(format!("nothing was replaced, and {replica} is stale: {why}"));
                }
            }
            Notice::RebuildDone { .. } => self.outcome.rebuilds += 1,
            Notice::Reconciled => self.outcome.reconciles += 1,
            Notice::IsrChanged { .. } => self.outcome.isr_changes += 1,
            Notice::Repaired { .. } => {
                self.outcome.repairs += 1;
                if !self.plan.faults.rot {
                    self.wrong(format!("nothing rots here: {notice:?}"));
                }
            }
            // A power cut may tear a copy, and nothing else.
            Notice::MetadataRepaired { lost_pages: 1.., .. } | Notice::MetadataDamaged { .. } => {
                self.wrong(format!("no metadata is damaged here: {notice:?}"));
            }
            // The copy that did not rot may be out of reach for now. It must not be for good: then
            // a read fails.
            Notice::Unreadable { .. } if !self.plan.faults.rot => {
                self.wrong(format!("nothing rots here: {notice:?}"));
            }
            // The only reason to give up: all that was left had lost power under a living guest.
            Notice::Faulted { why: Fault::LostWrites } if self.oracle.has_lost_power() => {}
            Notice::Faulted { why: Fault::Stale(_) } if self.backup.is_restored() => {
                self.backup.refused = true;
            }
            Notice::Faulted { why } => self.wrong(format!("an engine gave up: {why}")),
            Notice::Fenced { .. } => self.outcome.fenced += 1,
            Notice::Ambiguous { offset, length } if self.may_be_disputed() => {
                self.disputed.extend(offset / BLOCK..(offset + length) / BLOCK);
            }
            Notice::Ambiguous { offset, .. } => {
                self.wrong(format!("members differ at {offset} with good checksums"));
            }
            Notice::Diverged { replica, offset, .. } => {
                self.wrong(format!("replica {replica} differs at {offset} with good checksums"));
            }
            _ => {}
        }
        self.notices.push(notice);
    }

    /// No host vouches for its replica, and what is damaged or torn in one of them may have been
    /// the only version of a block that was flushed.
    pub(crate) fn may_be_disputed(&self) -> bool {
        !self.plan.witness || self.oracle.has_lost_power()
    }

    /// Whether an engine has said that it does not know what these sectors hold.
    pub(crate) fn is_disputed(&self, server: usize, first: usize, count: usize) -> bool {
        let engine = self.servers[server].engine.as_ref();
        let disputed = engine.map(|engine| engine.status().disputed).unwrap_or_default();
        let (start, end) = ((first * SECTOR) as u64, ((first + count) * SECTOR) as u64);
        let touches = |it: &ByteRange| it.offset < end && start < it.offset + it.length;
        self.may_be_disputed() && disputed.iter().any(touches)
    }
}
