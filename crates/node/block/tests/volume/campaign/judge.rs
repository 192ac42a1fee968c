//! Conditions that hold after damage: of reads, of the directories of replicas and of a scrub.

use std::path::Path;

use block::run::{AdminReply, AdminRequest};
use block::store::{Problem, Severity, View};

use super::Campaign;
use super::damaged::Harm;
use crate::harm::{Damage, Done, replace};
use crate::shadow::{Blocks, Violation, check_replica};

impl Campaign {
    /// Reads the only replica, and writes what it lost.
    pub(super) fn read_alone(&mut self, harm: &Harm, taken: &Blocks) -> Result<(), Violation> {
        let mut client = self.client();
        let bad = self.shadow.read(&mut client, taken)?;
        if harm.is_data_only() && !bad.is_subset(&harm.blocks) {
            return Err(Violation(format!("{bad:?} fail; damaged were {:?}", harm.blocks)));
        }
        self.rewrite(&bad.union(taken).copied().collect());
        self.read_all(&Blocks::new())
    }

    /// Damage of a replica that makes reads wrong or fail is found by a check of its directory.
    pub(super) fn check_finds(
        &self,
        index: usize,
        done: &[Done],
        taken: &Blocks,
    ) -> Result<bool, Violation> {
        let dir = self.dir(index);
        if !dir.exists() {
            return Ok(false);
        }
        let report = check_replica(&dir);
        // A copy of other times is whole.
        if !report.is_healthy() || done.iter().any(|it| it.damage == Damage::OlderCopy) {
            return Ok(report.is_healthy());
        }
        let alone = self.lab.dir.path().join("alone");
        replace(&dir, &alone);
        self.compare_replica(&alone, taken).map_err(|Violation(what)| {
            Violation(format!("the check finds nothing in replica {index}: {report}; {what}"))
        })?;
        Ok(true)
    }

    pub(super) fn compare_replica(&self, dir: &Path, taken: &Blocks) -> Result<(), Violation> {
        let head = (View::Head, &self.shadow);
        let snapshots = self.snapshots.iter().map(|it| (View::Snapshot(it.id), &it.shadow));
        for (view, shadow) in std::iter::once(head).chain(snapshots) {
            let bad = shadow.read_replica(dir, view, taken);
            let bad = bad.map_err(|Violation(what)| Violation(format!("{view:?}: {what}")))?;
            if !bad.is_subset(taken) {
                return Err(Violation(format!("{view:?}: {bad:?} cannot be read")));
            }
        }
        Ok(())
    }

    /// Reads everything, often enough for each replica to be asked.
    pub(super) fn read_all(&self, taken: &Blocks) -> Result<(), Violation> {
        let mut client = self.client();
        for _ in 0..self.plan.replicas {
            let bad = self.shadow.read(&mut client, taken)?;
            if !bad.is_subset(taken) {
                return Err(Violation(format!("{bad:?} cannot be read")));
            }
        }
        Ok(())
    }

    /// After a clean stop nothing is wrong with any replica, and each holds the same.
    pub(super) fn verify(&mut self) -> Result<(), Violation> {
        self.flush();
        self.lab.stop_in_sync();
        if self.inspect()? > Severity::Note {
            // One of the two copies of a page that was lost is as it was until another scrub.
            self.lab.resume();
            self.lab.wait_in_sync(self.plan.replicas);
            self.scrub();
            self.lab.stop_in_sync();
            if self.inspect()? > Severity::Note {
                return Err(Violation("another scrub does not repair the rest".to_owned()));
            }
        }
        if self.rng.one_in(2) {
            self.keep_older();
        }
        self.lab.resume();
        Ok(())
    }

    /// Nothing is lost in any replica. Gives the severity of what else is wrong.
    pub(super) fn inspect(&self) -> Result<Severity, Violation> {
        let mut worst = Severity::Note;
        for index in 0..self.plan.replicas {
            let dir = self.dir(index);
            let report = check_replica(&dir);
            if !report.is_healthy() {
                return Err(Violation(format!("replica {index} is not repaired: {report}")));
            }
            let others = report.findings.iter().filter(|it| it.problem != Problem::Answered);
            worst = others.map(|it| it.severity()).max().unwrap_or(worst).max(worst);
            self.compare_replica(&dir, &Blocks::new())
                .map_err(|Violation(what)| Violation(format!("replica {index}: {what}")))?;
        }
        Ok(worst)
    }

    /// Gives what could not be repaired: files and pages of maps.
    pub(super) fn scrub(&self) -> usize {
        let scrubs = || self.lab.log().matches("ScrubDone").count();
        let before = scrubs();
        self.lab.admin(AdminRequest::Scrub);
        self.lab.wait("the scrub to end", |_| scrubs() > before);
        let AdminReply::Status(status) = self.lab.admin(AdminRequest::Status) else {
            panic!("no status")
        };
        let metadata = status.last_scrub.map(|it| it.metadata).unwrap_or_default();
        metadata.iter().map(|it| it.report.left.len() + it.report.lost_pages as usize).sum()
    }
}
