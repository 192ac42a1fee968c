//! A control plane that is restored from a backup: the record of the volume is an older copy of
//! itself, and may name replicas that left the in-sync set since.

use super::world::World;
use crate::ids::ReplicaId;
use crate::repl::control::{Record, Version};

/// The backup, and what has to be known after it was restored.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    /// The record as it was when the backup was made.
    pub(crate) saved: Option<Record>,
    /// The in-sync set that had everything when the backup was restored.
    truth: Option<Vec<ReplicaId>>,
    /// An engine refused the volume: a person has to choose a replica.
    pub(crate) refused: bool,
}

impl Backup {
    pub(crate) fn is_restored(&self) -> bool {
        self.truth.is_some()
    }
}

impl World {
    /// Puts the backup in the place of the record, if the set has changed since and its members
    /// know that. The network and all hosts are there, because what proves the record old must be
    /// within reach.
    pub(crate) fn restore_record(&mut self) {
        let now = self.record.record.clone();
        let all_have_epoch = (0..self.hosts.len())
            .filter(|host| now.isr.contains(&self.hosts[*host].replica))
            .collect::<Vec<_>>()
            .into_iter()
            .all(|host| self.hosts[host].disk.epoch() == now.epoch);
        let changed = self.backup.saved.as_ref().is_some_and(|saved| saved.isr != now.isr);
        let Some(saved) = self.backup.saved.take_if(|_| all_have_epoch && changed) else { return };
        self.trace(|| format!("the record of {now:?} is replaced by {saved:?}"));
        self.crash_all_engines();
        self.net.heal_all();
        self.control_away = false;
        for host in 0..self.hosts.len() {
            self.hosts[host].hangs_until = self.now;
            self.start_host(host);
        }
        self.backup.truth = Some(now.isr.into_iter().collect());
        self.replace_record(saved);
        self.outcome.restored_records += 1;
    }

    /// Acts as an administrator does when an engine reports that no replica of the record is
    /// current.
    pub(crate) fn salvage_if_refused(&mut self) {
        if !std::mem::take(&mut self.backup.refused) {
            return;
        }
        let Some(kept) = self.backup.truth.as_ref().and_then(|truth| truth.first()) else { return };
        let salvaged = self.record.record.salvaged(*kept);
        self.replace_record(salvaged);
    }

    fn replace_record(&mut self, record: Record) {
        self.record.version = Version(self.record.version.0 + 1);
        self.record.record = record;
    }
}
