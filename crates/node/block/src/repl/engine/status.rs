//! The status that an engine reports.

use super::damage::ScrubResult;
use super::member::Role;
use super::notice::Status;
use super::{Closing, Engine, Phase};
use crate::ids::{Epoch, Generation, ReplicaId};
use crate::repl::control::ByteRange;

impl Engine {
    pub fn status(&self) -> Status {
        let record = self.control.record();
        Status {
            phase: match self.phase {
                Phase::Active if self.config.encrypted && self.cipher.is_none() => "locked",
                phase => phase.name(),
            },
            generation: self.generation,
            epoch: record.map_or(Epoch(0), |record| record.epoch),
            size: self.size.saturating_sub(self.hidden()),
            isr: record.map(|record| record.isr.iter().copied().collect()).unwrap_or_default(),
            rebuilds: self.rebuilds(),
            rebuild_faults: self
                .members
                .iter()
                .filter_map(|it| Some((it.id, it.rebuild_fault?)))
                .collect(),
            waiting: self.waiting.clone().filter(|_| matches!(self.phase, Phase::Opening { .. })),
            rebuild_rate: self.throttle.rate(),
            unreconciled: self.unreconciled.len(),
            snapshots: self.snapshots.clone(),
            stats: self.members.iter().filter_map(|it| Some((it.id, it.stats?))).collect(),
            scrub: self
                .scrub
                .as_ref()
                .map(|it| ((it.next * self.region).min(self.size), self.size)),
            last_scrub: self.last_scrub(),
            unproven: self.unproven,
            disputed: self.of_guest(self.disputes.disputed()),
            lost: self.of_guest(self.disputes.lost()),
            latency: self.members.iter().map(|it| (it.id, it.latency.average())).collect(),
        }
    }

    fn last_scrub(&self) -> Option<ScrubResult> {
        let (bad_blocks, found, metadata) = self.last_scrub.as_ref()?;
        let mut damage = found.list(|snapshot, replica| {
            self.snapshots.iter().any(|info| info.id == snapshot)
                && self.members.iter().any(|it| it.id == replica && it.wanted)
        });
        for entry in &mut damage {
            entry.ranges = self.of_guest(std::mem::take(&mut entry.ranges));
        }
        let exists = |replica| self.members.iter().any(|it| it.id == replica && it.wanted);
        let metadata = metadata.list(exists);
        Some(ScrubResult { bad_blocks: *bad_blocks, damage, metadata })
    }

    /// Ranges as the guest counts: the header of an encrypted volume is not part of its disk.
    fn of_guest(&self, ranges: Vec<ByteRange>) -> Vec<ByteRange> {
        let shown = |it: ByteRange| ByteRange {
            offset: it.offset.saturating_sub(self.hidden()),
            length: it.length,
        };
        ranges.into_iter().map(shown).collect()
    }

    /// Whether a replica is being removed from the in-sync set; the record may still have it.
    pub fn is_leaving(&self, replica: ReplicaId) -> bool {
        self.members.iter().any(|it| it.id == replica && matches!(it.role, Role::Leaving))
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Serves the guest.
    pub fn is_active(&self) -> bool {
        self.is_serving()
    }

    /// Gave up, and says why in a notice.
    pub fn is_faulted(&self) -> bool {
        matches!(self.phase, Phase::Faulted(_))
    }

    /// Will never serve again.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::Fenced | Phase::Faulted(_))
    }

    /// The driver should not bring more requests until some have been answered.
    pub fn is_saturated(&self) -> bool {
        self.window >= self.config.window
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Standby => "standby",
            Self::Claiming => "claiming",
            Self::Opening { .. } => "opening",
            Self::Confirming => "confirming",
            Self::Settling { .. } => "settling",
            Self::Active => "active",
            Self::Closing(Closing::Draining) => "draining",
            Self::Closing(_) => "closing",
            Self::Closed => "closed",
            Self::Fenced => "fenced",
            Self::Faulted(_) => "faulted",
        }
    }
}
