//! The dirty-region log in memory, and the locks between writes and background work.
//!
//! ```text
//!            first write             record durable
//!  Inactive ─────────────► Activating ─────────────► Active
//!      ▲                                               │
//!      └── clean: data synced, presence in the log, ───┘
//!          map page on disk, no write since
//! ```
//!
//! Data is written only to active regions. Where regions are written one after the other, the next
//! ones become active before they are written, so that no write waits for their records.
//!
//! After an unclean stop the regions that were active are *suspect*: the checksums in their maps may
//! be older than the data, so they are read again before the region is used. They stay
//! *inherited*, and active, until the caller says that they were reconciled with the peers.
//!
//! A region is used by any number of writes or by one piece of background work, not both.

use std::collections::BTreeMap;

use super::geometry::Region;
use super::slab::Key;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Inactive,
    Activating,
    Active,
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub phase: Phase,
    /// Writes in flight.
    pub writers: u32,
    /// Background work has it.
    pub locked: bool,
    /// Background work wants it: new writes wait.
    pub wanted: bool,
    /// Written since the last clean began.
    pub touched: bool,
    /// May become inactive when the clean that runs is done, unless it is written before.
    pub candidate: bool,
    pub inherited: bool,
    /// Stays active until the caller says that it may go.
    pub held: bool,
    pub suspect: bool,
    /// Suspect and being read.
    pub verifying: bool,
    /// Suspect, and could not be read.
    pub unreadable: bool,
    /// Wait for any of the above to change.
    pub waiting: Vec<Key>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.phase == Phase::Inactive
            && self.writers == 0
            && !self.locked
            && !self.wanted
            && self.waiting.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Regions {
    entries: BTreeMap<Region, Entry>,
    /// Not inactive, and not inherited.
    active: usize,
    suspects: usize,
    limit: usize,
    /// Whether regions are held when they become active.
    holds: bool,
}

impl Regions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), active: 0, suspects: 0, limit, holds: false }
    }

    /// From now on a region stays active until [`Self::settle`].
    pub(crate) fn hold(&mut self) {
        self.holds = true;
    }

    /// A region that was active when the replica stopped.
    pub(crate) fn inherit(&mut self, region: Region) {
        let entry = self.entries.entry(region).or_default();
        debug_assert!(entry.phase == Phase::Inactive);
        *entry = Entry { phase: Phase::Active, inherited: true, suspect: true, ..Entry::default() };
        self.suspects += 1;
    }

    pub(crate) fn entry(&mut self, region: Region) -> &mut Entry {
        self.entries.entry(region).or_default()
    }

    pub(crate) fn get(&self, region: Region) -> Option<&Entry> {
        self.entries.get(&region)
    }

    pub(crate) fn is_suspect(&self, region: Region) -> bool {
        self.suspects > 0 && self.entries.get(&region).is_some_and(|entry| entry.suspect)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn has_room(&self) -> bool {
        self.active < self.limit
    }

    /// Whether a clean should make some inactive before there is no room at all.
    pub(crate) fn is_crowded(&self) -> bool {
        self.active * 4 >= self.limit * 3
    }

    pub(crate) fn activate(&mut self, region: Region) {
        let entry = self.entries.entry(region).or_default();
        debug_assert!(entry.phase == Phase::Inactive);
        entry.phase = Phase::Activating;
        entry.touched = true;
        entry.held = self.holds;
        self.active += 1;
    }

    /// A region that is likely to be written soon: false if nothing is to be done about it. There
    /// is nothing in it that peers could lack.
    pub(crate) fn activate_ahead(&mut self, region: Region) -> bool {
        let used = |entry: &Entry| entry.phase != Phase::Inactive || entry.locked || entry.wanted;
        if self.entries.get(&region).is_some_and(used) {
            return false;
        }
        self.activate(region);
        self.entry(region).held = false;
        true
    }

    /// An active region is written to. Its peers may not have this write, even if they agreed
    /// before.
    pub(crate) fn touch(&mut self, region: Region) -> &mut Entry {
        let holds = self.holds;
        let entry = self.entry(region);
        entry.touched = true;
        entry.candidate = false;
        entry.held = holds;
        entry
    }

    /// The record is durable. Gives those who wait.
    pub(crate) fn activated(&mut self, region: Region) -> Vec<Key> {
        let entry = self.entry(region);
        debug_assert!(entry.phase == Phase::Activating);
        entry.phase = Phase::Active;
        std::mem::take(&mut entry.waiting)
    }

    /// Marks what may become inactive at the end of a clean.
    pub(crate) fn mark_candidates(&mut self, eager: Eager) {
        // As long as there is room, an active region costs nothing and saves a record; without
        // any left, recent use is no excuse. Where the caller decides, it has decided.
        let spare_all = eager == Eager::No && !self.is_crowded() && !self.holds;
        let spare_touched = eager == Eager::No && self.has_room();
        for entry in self.entries.values_mut() {
            let touched = std::mem::take(&mut entry.touched);
            let spared = spare_all || (touched && spare_touched);
            let in_use = entry.writers > 0 || entry.locked;
            let in_doubt = entry.inherited || entry.held || entry.suspect;
            entry.candidate = entry.phase == Phase::Active && !in_use && !in_doubt && !spared;
        }
    }

    /// Whether a region waits for nothing but its record and its writers to become inactive.
    pub(crate) fn may_become_inactive(&self) -> bool {
        self.entries.values().any(|entry| {
            entry.phase != Phase::Inactive && !entry.inherited && !entry.held && !entry.suspect
        })
    }

    /// The candidates that were not written since they were marked.
    pub(crate) fn candidates(&self) -> Vec<Region> {
        let entries = self.entries.iter();
        entries.filter(|(_, entry)| entry.candidate).map(|(region, _)| *region).collect()
    }

    pub(crate) fn deactivate(&mut self, region: Region) {
        let entry = self.entry(region);
        debug_assert!(entry.candidate && entry.writers == 0 && entry.phase == Phase::Active);
        entry.phase = Phase::Inactive;
        entry.candidate = false;
        self.active -= 1;
        self.tidy(region);
    }

    /// The peers agree on an inherited region: it is like any other now.
    pub(crate) fn reconcile(&mut self, region: Region) {
        if let Some(entry) = self.entries.get_mut(&region)
            && entry.inherited
        {
            entry.inherited = false;
            entry.held = self.holds;
            self.active += 1;
        }
    }

    /// The peers have everything that was written to the region: it may become inactive.
    pub(crate) fn settle(&mut self, region: Region) {
        self.reconcile(region);
        if let Some(entry) = self.entries.get_mut(&region) {
            entry.held = false;
            entry.touched = entry.writers > 0;
        }
    }

    /// Whether there is none whose checksums cannot be believed.
    pub(crate) fn are_verified(&self) -> bool {
        self.suspects == 0
    }

    /// A region that is suspect and that is not being verified.
    pub(crate) fn next_unverified(&self) -> Option<Region> {
        if self.suspects == 0 {
            return None;
        }
        let mut entries = self.entries.iter();
        let found =
            entries.find(|(_, entry)| entry.suspect && !entry.verifying && !entry.unreadable);
        found.map(|(region, _)| *region)
    }

    /// A write failed: the content is unknown, and is verified before the region is used.
    pub(crate) fn doubt(&mut self, region: Region) {
        let entry = self.entry(region);
        entry.unreadable = false;
        if !entry.suspect {
            entry.suspect = true;
            self.suspects += 1;
        }
    }

    /// The checksums of a region can be believed from now on.
    pub(crate) fn verified(&mut self, region: Region) {
        let entry = self.entry(region);
        debug_assert!(entry.suspect && entry.verifying);
        entry.suspect = false;
        entry.verifying = false;
        self.suspects -= 1;
    }

    /// Forgets a region about which there is nothing to remember.
    pub(crate) fn tidy(&mut self, region: Region) {
        if self.entries.get(&region).is_some_and(Entry::is_idle) {
            self.entries.remove(&region);
        }
    }

    /// Regions with a record in the log.
    pub(crate) fn active(&self) -> impl Iterator<Item = (Region, &Entry)> {
        let entries = self.entries.iter().map(|(region, entry)| (*region, entry));
        entries.filter(|(_, entry)| entry.phase != Phase::Inactive)
    }

    pub(crate) fn inherited(&self) -> usize {
        self.entries.values().filter(|entry| entry.inherited).count()
    }

    pub(crate) fn memory(&self) -> usize {
        self.entries.len() * (size_of::<(Region, Entry)>() + 16)
    }
}

/// How hard a clean tries to make regions inactive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Eager {
    /// Only those without recent writes.
    #[default]
    No,
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_written_during_a_clean_stays_active() {
        let mut regions = Regions::new(8);
        for number in [1, 2] {
            regions.activate(Region(number));
            regions.activated(Region(number));
        }
        regions.mark_candidates(Eager::All);
        let entry = regions.entry(Region(2));
        entry.candidate = false;
        entry.writers = 1;
        assert_eq!(regions.candidates(), [Region(1)]);
        regions.deactivate(Region(1));
        assert_eq!(regions.active().map(|(region, _)| region.0).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn recent_use_saves_a_region_once() {
        let mut regions = Regions::new(3);
        for number in [1, 2] {
            regions.activate(Region(number));
            regions.activated(Region(number));
            regions.mark_candidates(Eager::No);
            regions.mark_candidates(Eager::No);
            assert_eq!(regions.candidates(), [], "there is room");
        }
        regions.entry(Region(2)).touched = true;
        regions.limit = 2;
        regions.mark_candidates(Eager::No);
        assert_eq!(regions.candidates(), [Region(1), Region(2)], "there is none");
        regions.limit = 5;
        regions.activate(Region(3));
        regions.activated(Region(3));
        regions.activate(Region(4));
        regions.activated(Region(4));
        regions.mark_candidates(Eager::No);
        assert_eq!(regions.candidates(), [Region(1), Region(2)], "it gets tight");
    }

    #[test]
    fn a_region_that_is_written_after_it_was_settled_waits_for_the_next_time() {
        let mut regions = Regions::new(1);
        regions.hold();
        regions.activate(Region(1));
        regions.activated(Region(1));
        regions.settle(Region(1));
        // Settled, and written to before a clean came by.
        regions.touch(Region(1));
        for _ in 0..3 {
            regions.mark_candidates(Eager::All);
            assert_eq!(regions.candidates(), [], "the peers may not have it");
        }
        regions.settle(Region(1));
        regions.mark_candidates(Eager::All);
        assert_eq!(regions.candidates(), [Region(1)]);
    }

    #[test]
    fn a_region_that_was_expected_to_be_written_and_was_not_may_go() {
        let mut regions = Regions::new(8);
        regions.hold();
        for number in [1, 2] {
            assert!(regions.activate_ahead(Region(number)));
            assert!(!regions.activate_ahead(Region(number)), "it is already");
            regions.activated(Region(number));
        }
        regions.touch(Region(2));
        regions.entry(Region(3)).locked = true;
        assert!(!regions.activate_ahead(Region(3)), "another operation has it");
        regions.mark_candidates(Eager::All);
        assert_eq!(regions.candidates(), [Region(1)], "the peers may not have the other");
    }

    #[test]
    fn an_inherited_region_stays_until_it_is_reconciled() {
        let mut regions = Regions::new(1);
        regions.inherit(Region(3));
        assert!(regions.has_room(), "inherited regions do not take the room of others");
        regions.mark_candidates(Eager::All);
        assert_eq!(regions.candidates(), []);
        regions.reconcile(Region(3));
        assert_eq!(regions.next_unverified(), Some(Region(3)));
        regions.mark_candidates(Eager::All);
        assert_eq!(regions.candidates(), [], "its checksums are not on disk");
        regions.entry(Region(3)).verifying = true;
        regions.verified(Region(3));
        regions.mark_candidates(Eager::All);
        assert_eq!(regions.candidates(), [Region(3)]);
    }
}
