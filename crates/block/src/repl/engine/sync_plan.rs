//! What must be copied where, so that a range is the same on some replicas.

use std::collections::BTreeMap;

use crate::repl::slots::Slots;
use crate::wire::BlockState;

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
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// Blocks that nobody who is trusted has as they were written.
    pub(super) lost: Vec<usize>,
}

/// Compares maps. The truth is what `source` has, or, where that is damaged, another of the
/// `trusted`. Without `compare` everything is copied, whatever the checksums say.
pub(super) fn plan(
    maps: &BTreeMap<usize, Vec<BlockState>>,
    source: usize,
    trusted: Slots,
    targets: Slots,
    compare: bool,
) -> Plan {
    let mut plan = Plan::default();
    let blocks = maps.get(&source).map_or(0, Vec::len);
    let state = |slot: usize, block: usize| maps.get(&slot).and_then(|map| map.get(block)).copied();
    let sound = |slot: usize, block: usize| {
        state(slot, block).filter(|state| *state != BlockState::Bad).map(|state| (slot, state))
    };
    for block in 0..blocks {
        let truth =
            sound(source, block).or_else(|| trusted.iter().find_map(|slot| sound(slot, block)));
        let Some((from, truth)) = truth else {
            plan.lost.push(block);
            continue;
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

#[cfg(test)]
mod tests {
    use super::BlockState::{Bad, Data, Zero};
    use super::*;

    fn slots(list: &[usize]) -> Slots {
        list.iter().copied().collect()
    }

    #[test]
    fn differences_become_runs() {
        let maps = BTreeMap::from([
            (0, vec![Data(1), Data(2), Data(3), Zero, Zero, Bad, Bad]),
            (1, vec![Data(1), Data(9), Data(9), Data(9), Zero, Data(5), Bad]),
            (2, vec![Data(1), Data(9), Data(9), Zero, Zero, Data(6), Bad]),
        ]);
        let all = slots(&[0, 1, 2]);
        let run = |first, count, from, to: &[usize]| Run { first, count, from, to: slots(to) };
        let found = plan(&maps, 0, all, all, true);
        assert_eq!(
            found.runs,
            [run(1, 2, Some(0), &[1, 2]), run(3, 1, None, &[1]), run(5, 1, Some(1), &[0, 2]),]
        );
        assert_eq!(found.lost, [6]);
    }

    #[test]
    fn without_comparison_data_is_copied_and_zeroes_only_where_needed() {
        let maps =
            BTreeMap::from([(0, vec![Data(1), Zero, Zero]), (1, vec![Data(1), Zero, Data(2)])]);
        let found = plan(&maps, 0, slots(&[0]), slots(&[1]), false);
        let runs: Vec<_> = found.runs.iter().map(|run| (run.first, run.from)).collect();
        assert_eq!(runs, [(0, Some(0)), (2, None)]);
    }
}
