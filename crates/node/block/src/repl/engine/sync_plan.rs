//! The copies that make a range the same on some replicas: pure.
//!
//! The right content is decided block by block, by evidence:
//!
//! 1. A block whose checksum does not match is not believed.
//! 2. A member that may have lost writes is not believed while another has the block.
//! 3. Of what is left, the content that most members agree on.
//! 4. A single member whose newest flush is older than that of a member with a bad block is not
//!    believed: the bad block may have been the only copy of what was flushed since ([`Age`]).
//! 5. Where as many members have one content as another, the one of the best member: the order of
//!    `trusted`. After an unclean stop that is right: a write that was under way has no
//!    acknowledgement, and either version may stay. Where nothing was under way it would be a
//!    guess, and no version is right ([`Ties::Ambiguous`]).

use std::collections::BTreeMap;

use crate::ids::FlushMark;
use crate::repl::slots::Slots;
use crate::wire::{BlockState, Witnessed};

/// Blocks in a row that come from one place and go to the same members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the first block within the range.
    pub(super) first: usize,
    pub(super) count: usize,
    /// The member that has the data; none: it is zeroes.
    pub(super) from: Option<usize>,
    pub(super) to: Slots,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SyncPlan {
    pub(super) runs: Vec<Run>,
    /// Blocks that no trusted member has as they were written.
    pub(super) lost: Vec<usize>,
    /// Blocks that members have differently, without a reason to believe one of them.
    pub(super) ambiguous: Vec<usize>,
}

/// The meaning of a tie: as many members have one content as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// A write was under way: the best member has one of the versions that may stay.
    BestMember,
    /// Nothing was: a member is wrong, and it is not known which.
    Ambiguous,
}

/// How old the content of a member can be, within the regions that were dirty when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    /// It has everything that was acknowledged before this flush.
    pub(super) flushed: FlushMark,
    /// Unless its host proves that it holds every change it answered, it may be a copy that lacks
    /// what was acknowledged since.
    pub(super) witnessed: Witnessed,
}

/// Which replicas have evidence of being current, and which may have lost writes.
pub(super) struct Trust<'a> {
    /// The best member first.
    pub(super) trusted: &'a [usize],
    /// Those that may have lost writes.
    pub(super) lossy: Slots,
    pub(super) ties: Ties,
    /// By slot, where members may differ in age: in regions that were dirty.
    pub(super) ages: &'a BTreeMap<usize, Age>,
    /// Blocks that were found ambiguous before: a version that was copied since proves nothing.
    pub(super) disputed: &'a dyn Fn(usize) -> bool,
}

/// Compares maps. Without `compare` everything is copied, whatever the checksums say.
pub(super) fn plan(
    maps: &BTreeMap<usize, Vec<BlockState>>,
    trust: &Trust<'_>,
    targets: Slots,
    compare: bool,
) -> SyncPlan {
    let mut plan = SyncPlan::default();
    let first = trust.trusted.first().and_then(|slot| maps.get(slot));
    let state = |slot: usize, block: usize| maps.get(&slot).and_then(|map| map.get(block)).copied();
    for block in 0..first.map_or(0, Vec::len) {
        if trust.ties == Ties::Ambiguous && (trust.disputed)(block) {
            plan.ambiguous.push(block);
            continue;
        }
        let (from, truth) = match truth(trust, |slot| state(slot, block)) {
            Truth::Of(from, truth) => (from, truth),
            Truth::Lost => {
                plan.lost.push(block);
                continue;
            }
            Truth::Ambiguous => {
                plan.ambiguous.push(block);
                continue;
            }
        };
        let differs = |slot: &usize| {
            let here = state(*slot, block);
            *slot != from && (here != Some(truth) || (!compare && truth != BlockState::Zero))
        };
        let to: Slots = targets.iter().filter(differs).collect();
        if to.is_empty() {
            continue;
        }
        let from = (truth != BlockState::Zero).then_some(from);
        match plan.runs.last_mut() {
            Some(run) if run.first + run.count == block && run.from == from && run.to == to => {
                run.count += 1;
            }
            _ => plan.runs.push(Run { first: block, count: 1, from, to }),
        }
    }
    plan
}

enum Truth {
    Of(usize, BlockState),
    Lost,
    Ambiguous,
}

fn truth(trust: &Trust<'_>, state_of: impl Fn(usize) -> Option<BlockState>) -> Truth {
    let sound = |slot: &usize| {
        state_of(*slot).filter(|state| *state != BlockState::Bad).map(|state| (*slot, state))
    };
    let mut found: Vec<(usize, BlockState)> = trust.trusted.iter().filter_map(sound).collect();
    if found.iter().any(|(slot, _)| !trust.lossy.has(*slot)) {
        found.retain(|(slot, _)| !trust.lossy.has(*slot));
    }
    let votes = |state: BlockState| found.iter().filter(|(_, other)| *other == state).count();
    let most = found.iter().map(|(_, state)| votes(*state)).max().unwrap_or(0);
    let mut best = found.iter().filter(|(_, state)| votes(*state) == most);
    let Some(&(slot, state)) = best.next() else { return Truth::Lost };
    if trust.ties == Ties::Ambiguous && best.any(|(_, other)| *other != state) {
        return Truth::Ambiguous;
    }
    let damaged = trust.trusted.iter().filter(|it| state_of(**it) == Some(BlockState::Bad));
    let newest = damaged.filter_map(|slot| trust.ages.get(slot)).map(|age| age.flushed).max();
    match most < 2 && trust.ages.get(&slot).is_some_and(|age| age.may_be_before(newest)) {
        true => Truth::Ambiguous,
        false => Truth::Of(slot, state),
    }
}

impl Age {
    fn may_be_before(self, newest: Option<FlushMark>) -> bool {
        self.witnessed != Witnessed::Intact && newest.is_some_and(|newest| self.flushed < newest)
    }
}

#[cfg(test)]
mod tests {
    use super::BlockState::{Bad, Data, Zero};
    use super::*;

    static NO_AGES: BTreeMap<usize, Age> = BTreeMap::new();

    fn slots(list: &[usize]) -> Slots {
        list.iter().copied().collect()
    }

    fn trust(trusted: &[usize]) -> Trust<'_> {
        Trust {
            trusted,
            lossy: Slots::NONE,
            ties: Ties::BestMember,
            ages: &NO_AGES,
            disputed: &|_| false,
        }
    }

    #[test]
    fn differences_become_runs() {
        let maps = BTreeMap::from([
            (0, vec![Data(1), Data(2), Data(3), Zero, Zero, Bad, Bad]),
            (1, vec![Data(1), Data(9), Data(8), Data(9), Zero, Data(5), Bad]),
        ]);
        let all = slots(&[0, 1]);
        let run = |first, count, from, to: &[usize]| Run { first, count, from, to: slots(to) };
        let found = plan(&maps, &trust(&[0, 1]), all, true);
        assert_eq!(
            found.runs,
            [run(1, 2, Some(0), &[1]), run(3, 1, None, &[1]), run(5, 1, Some(1), &[0])]
        );
        assert_eq!(found.lost, [6]);
    }

    #[test]
    fn evidence_decides_and_not_the_order() {
        // States of members 0 to 2, who lost writes, and who is believed.
        type Case = ([BlockState; 3], &'static [usize], Result<usize, ()>);
        let cases: [Case; 7] = [
            ([Data(1), Data(2), Data(2)], &[], Ok(1)),
            ([Data(1), Data(2), Data(1)], &[], Ok(0)),
            ([Bad, Data(2), Data(3)], &[], Ok(1)),
            ([Data(1), Data(2), Data(3)], &[], Ok(0)),
            ([Data(1), Data(2), Data(2)], &[1, 2], Ok(0)),
            ([Bad, Data(2), Data(2)], &[1, 2], Ok(1)),
            ([Bad, Bad, Bad], &[], Err(())),
        ];
        for (states, lossy, expected) in cases {
            let maps = (0..3).map(|slot| (slot, vec![states[slot]])).collect();
            let trust = Trust { lossy: slots(lossy), ..trust(&[0, 1, 2]) };
            let found = plan(&maps, &trust, slots(&[0, 1, 2]), true);
            let from = found.runs.first().and_then(|run| run.from).ok_or(());
            assert_eq!(from, expected, "{states:?}, lossy {lossy:?}");
            assert_eq!(found.lost.is_empty(), expected.is_ok());
        }
    }

    #[test]
    fn a_member_that_may_be_older_than_a_bad_block_is_not_believed() {
        use Witnessed::{Intact, RolledBack, Unknown};
        // States, newest flushes and witnesses of members 0 to 2, and which member is believed.
        type Case = ([BlockState; 3], [u64; 3], [Witnessed; 3], Option<usize>);
        let cases: [Case; 9] = [
            ([Bad, Data(2), Bad], [17, 16, 16], [Unknown; 3], None),
            ([Bad, Data(2), Bad], [17, 16, 17], [Intact, Unknown, Intact], None),
            ([Bad, Data(2), Bad], [17, 16, 17], [Unknown, RolledBack, Unknown], None),
            ([Bad, Zero, Bad], [17, 16, 16], [Unknown; 3], None),
            ([Bad, Data(2), Bad], [17, 16, 17], [Unknown, Intact, Unknown], Some(1)),
            ([Bad, Data(2), Bad], [17, 17, 16], [Unknown; 3], Some(1)),
            ([Bad, Data(2), Data(2)], [17, 16, 16], [Unknown; 3], Some(1)),
            ([Bad, Data(1), Data(2)], [17, 17, 16], [Unknown; 3], Some(1)),
            ([Data(1), Data(2), Bad], [17, 16, 16], [Unknown; 3], Some(0)),
        ];
        for (states, flushes, witnesses, expected) in cases {
            let maps = (0..3).map(|slot| (slot, vec![states[slot]])).collect();
            let age = |slot: usize| Age {
                flushed: FlushMark { number: flushes[slot], ..FlushMark::default() },
                witnessed: witnesses[slot],
            };
            let ages = (0..3).map(|slot| (slot, age(slot))).collect();
            let trust = Trust { ages: &ages, ..trust(&[0, 1, 2]) };
            let found = plan(&maps, &trust, slots(&[0, 1, 2]), true);
            let from = found.runs.first().and_then(|run| run.from);
            assert_eq!(from, expected, "{states:?}, flushes {flushes:?}, {witnesses:?}");
            assert_eq!(found.ambiguous.is_empty(), expected.is_some());
            assert!(found.lost.is_empty());
        }
    }

    #[test]
    fn where_nothing_was_under_way_a_tie_is_nobodys_word() {
        let maps = BTreeMap::from([
            (0, vec![Data(1), Data(1), Bad]),
            (1, vec![Data(2), Data(1), Data(2)]),
        ]);
        let trust = Trust { ties: Ties::Ambiguous, ..trust(&[0, 1]) };
        let found = plan(&maps, &trust, slots(&[0, 1]), true);
        assert_eq!((found.ambiguous, found.runs.len()), (vec![0], 1));
        let trust = Trust { disputed: &|block| block == 1, ..trust };
        let found = plan(&maps, &trust, slots(&[0, 1]), true);
        assert_eq!(found.ambiguous, [0, 1], "what was disputed stays so until it is written");
    }

    #[test]
    fn without_comparison_data_is_copied_and_zeroes_only_where_needed() {
        let maps =
            BTreeMap::from([(0, vec![Data(1), Zero, Zero]), (1, vec![Data(1), Zero, Data(2)])]);
        let found = plan(&maps, &trust(&[0]), slots(&[1]), false);
        let runs: Vec<_> = found.runs.iter().map(|run| (run.first, run.from)).collect();
        assert_eq!(runs, [(0, Some(0)), (2, None)]);
    }
}
