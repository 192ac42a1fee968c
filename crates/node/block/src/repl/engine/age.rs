//! How old the content of members can be where they may differ: in regions that were dirty when
//! they were opened.
//!
//! A flush that was answered is reported as complete with the next one. A replica that was replaced
//! by a copy from between the two passes as current, and lacks what was acknowledged since; its
//! newest flush shows it, compared with that of the others. The engine makes a flush of its own
//! before it serves, so what the members had before is kept in the record until their dirty
//! regions are the same.

use std::collections::BTreeMap;

use super::Engine;
use super::sync_plan::Age;
use crate::ids::{FlushMark, ReplicaId};
use crate::repl::control::Record;
use crate::repl::slots::Slots;
use crate::wire::Witnessed;

impl Engine {
    /// The age of a member, as an earlier engine found it if that did not finish.
    fn age(&self, record: Option<&Record>, slot: usize) -> Age {
        let member = &self.members[slot];
        let recorded = record.and_then(|record| record.reconciling.get(&member.id));
        match recorded {
            // The count of its host since then gives no information about writes that were missing
            // before.
            Some(flushed) => Age { flushed: *flushed, witnessed: Witnessed::Unknown },
            None => {
                let claim = member.claim();
                Age { flushed: claim.flushed(), witnessed: claim.witnessed }
            }
        }
    }

    pub(super) fn ages(&self, members: Slots) -> BTreeMap<usize, Age> {
        let record = self.control.record();
        members.iter().map(|slot| (slot, self.age(record, slot))).collect()
    }

    /// The flush marks that the record keeps while the dirty regions of these members are
    /// compared.
    pub(super) fn reconciling(
        &self,
        record: &Record,
        members: Slots,
    ) -> BTreeMap<ReplicaId, FlushMark> {
        let is_dirty = |slot: usize| {
            self.members[slot].opened.as_ref().is_some_and(|opened| !opened.dirty.is_empty())
        };
        if !members.iter().any(is_dirty) {
            return BTreeMap::new();
        }
        let ages = members.iter().map(|slot| (self.members[slot].id, self.age(Some(record), slot)));
        unproven(ages)
    }

    /// How much a replica's content is worth compared with that of others, which may differ only
    /// where they are dirty.
    pub(super) fn credibility(&self, slot: usize) -> (bool, FlushMark) {
        let whole = self.members[slot].opened.as_ref().is_some_and(|it| !it.lost_writes);
        (whole, self.age(self.control.record(), slot).flushed)
    }
}

/// The newest flushes of replicas that no member proves current, if any two replicas differ.
fn unproven(ages: impl Iterator<Item = (ReplicaId, Age)>) -> BTreeMap<ReplicaId, FlushMark> {
    let ages: Vec<(ReplicaId, Age)> = ages.collect();
    let differ = ages.iter().any(|(_, age)| age.flushed != ages[0].1.flushed);
    let unproven = ages.iter().filter(|(_, age)| differ && age.witnessed != Witnessed::Intact);
    unproven.map(|(replica, age)| (*replica, age.flushed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;

    #[test]
    fn flushes_are_recorded_where_replicas_differ_and_no_member_vouches_for_them() {
        use Witnessed::{Intact, Unknown};
        let mark = |number| FlushMark { generation: Generation(2), number };
        let name = ReplicaId::from_u128;
        for (what, replicas, expected) in [
            ("one replica", vec![(16, Unknown)], vec![]),
            ("equal flushes", vec![(16, Unknown), (16, Unknown)], vec![]),
            ("the older is unproven", vec![(17, Intact), (16, Unknown)], vec![(1, 16)]),
            ("both are", vec![(17, Unknown), (16, Unknown)], vec![(0, 17), (1, 16)]),
            ("both are proven", vec![(17, Intact), (16, Intact)], vec![]),
        ] {
            let ages = (0u128..).zip(replicas).map(|(id, (number, witnessed))| {
                (name(id), Age { flushed: mark(number), witnessed })
            });
            let expected = expected.into_iter().map(|(id, number)| (name(id), mark(number)));
            assert_eq!(unproven(ages), expected.collect(), "{what}");
        }
    }
}
