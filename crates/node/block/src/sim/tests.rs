//! Seeds by the thousand, and proof that the oracle notices each rule that is left out.

use super::*;
use crate::repl::sabotage::Sabotage;

mod longhorn;

/// Seeds that once failed; they run first, every time.
const PINNED: &str = include_str!("../../seeds.txt");

/// How many seeds an ordinary run of the tests takes. `SHEAF_SIM_SEEDS` asks for another number.
fn seeds() -> u64 {
    std::env::var("SHEAF_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

fn pinned() -> Vec<u64> {
    let lines = PINNED.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let words = lines.filter_map(|line| line.split_whitespace().next());
    words.map(|seed| seed.parse().expect("a seed is a number")).collect()
}

/// Runs seeds in one of several tests, so that they use several cores.
fn run_share(share: u64, of: u64) {
    let mut total = Outcome::default();
    let mut ran = 0;
    for seed in pinned().into_iter().chain(0..seeds()).filter(|seed| seed % of == share) {
        match run_seed(seed) {
            Ok(outcome) => {
                total.add(&outcome);
                ran += 1;
            }
            Err(violation) => panic!("{violation}\nrun it with: cargo xtask sim --seed {seed}"),
        }
    }
    // A simulation in which nothing happens proves nothing.
    let Outcome { acked_writes, reads, activations, rebuilds, reconciles, isr_changes, .. } = total;
    let Outcome { rollbacks, stale, damaged_maps, restored_records, .. } = total;
    for (what, count) in [
        ("writes", acked_writes),
        ("reads", reads),
        ("activations", activations),
        ("rebuilds", rebuilds),
        ("reconciliations", reconciles),
        ("changes of the in-sync set", isr_changes),
        ("replicas replaced by an older copy", rollbacks),
        ("stale replicas", stale),
        ("damaged maps", damaged_maps),
        ("records restored from a backup", restored_records),
    ] {
        // The rarest of them is seen in about every twenty-fifth seed.
        let least = 1 + ran / 100;
        assert!(count >= least, "only {count} {what} in {ran} seeds, not {least}: {total:?}");
    }
}

#[test]
fn volumes_survive_what_even_seeds_bring() {
    run_share(0, 2);
}

#[test]
fn volumes_survive_what_odd_seeds_bring() {
    run_share(1, 2);
}

#[test]
fn volumes_on_the_real_store_survive_too() {
    for seed in pinned().into_iter().chain(0..seeds() / 8) {
        if let Err(violation) = run_plan(Plan::from_seed(seed).with_real_store()) {
            panic!("{violation}\nrun it with: cargo xtask sim --seed {seed} --real-store");
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 17, 99] {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

/// Searches for a seed that shows the sabotage; `shape` makes such seeds likely.
fn is_noticed(sabotage: Sabotage, shape: impl Fn(&mut Plan)) {
    for seed in 0..400 {
        let mut plan = Plan::from_seed(seed);
        shape(&mut plan);
        plan.sabotage = sabotage;
        if let Err(violation) = run_plan(plan.clone()) {
            plan.sabotage = Sabotage::None;
            let honest = run_plan(plan);
            assert!(honest.is_ok(), "{violation}\nand without sabotage: {honest:?}");
            return;
        }
    }
    panic!("no check noticed {sabotage:?}");
}

/// Only these faults.
fn only(plan: &mut Plan, faults: Faults) {
    plan.faults = faults;
    plan.replicas = 3;
    plan.trouble = 6;
    plan.ragged = false;
}

#[test]
fn overlapping_writes_without_locks_are_noticed() {
    is_noticed(Sabotage::NoLocks, |plan| {
        only(plan, Faults::default());
        plan.depth = 32;
        plan.blocks = 4;
        plan.length = Time::from_millis(100);
    });
}

#[test]
fn a_crash_without_reconciling_is_noticed() {
    is_noticed(Sabotage::NoReconcile, |plan| {
        only(plan, Faults { engine_crash: true, ..Faults::default() });
        plan.depth = 32;
        plan.length = Time::from_millis(300);
    });
}

#[test]
fn acknowledging_before_all_members_is_noticed() {
    is_noticed(Sabotage::EarlyAck, |plan| {
        only(plan, Faults { network: true, replica_crash: true, ..Faults::default() });
        plan.faults.lose_all_but_one = true;
        plan.delay = 5000;
    });
}

#[test]
fn replicas_that_listen_to_old_engines_are_noticed() {
    is_noticed(Sabotage::NoPromise, |plan| {
        only(plan, Faults { rival: true, ..Faults::default() });
    });
}

#[test]
fn a_promise_that_does_not_wait_for_old_writes_is_noticed() {
    is_noticed(Sabotage::NoDrain, |plan| {
        only(
            plan,
            Faults { rival: true, engine_crash: true, slow_disk: true, ..Faults::default() },
        );
        plan.disk = 5000;
        plan.depth = 32;
        plan.blocks = 4;
    });
}

#[test]
fn acknowledging_before_the_record_shrinks_is_noticed() {
    is_noticed(Sabotage::EarlyShrink, |plan| {
        only(
            plan,
            Faults {
                network: true,
                control_plane: true,
                lose_all_but_one: true,
                ..Faults::default()
            },
        );
        plan.trouble = 8;
    });
}

#[test]
fn a_flush_that_does_nothing_is_noticed() {
    is_noticed(Sabotage::NoFlush, |plan| {
        only(plan, Faults { cluster_power_cut: true, ..Faults::default() });
        plan.flushes = 200;
    });
}

#[test]
fn a_returning_replica_that_keeps_its_own_writes_is_noticed() {
    is_noticed(Sabotage::ForgetOwnDirt, |plan| {
        only(plan, Faults { power_cut: true, ..Faults::default() });
        plan.flushes = 20;
    });
}

#[test]
fn a_replica_replaced_by_an_older_copy_is_noticed_when_it_counts_as_in_sync() {
    is_noticed(Sabotage::TrustStale, |plan| {
        only(plan, Faults { rollback: true, close: true, ..Faults::default() });
        plan.flushes = 150;
        plan.trouble = 12;
        plan.replicas = 2;
    });
}

#[test]
fn a_restored_record_that_names_a_replica_which_left_the_set_is_noticed() {
    is_noticed(Sabotage::TrustStale, |plan| {
        only(plan, Faults { replica_crash: true, record_restored: true, ..Faults::default() });
        plan.trouble = 14;
        plan.replicas = 2;
    });
}

#[test]
fn a_scrub_that_leaves_snapshots_out_is_noticed() {
    is_noticed(Sabotage::HeadScrub, |plan| {
        only(plan, Faults { rot: true, rot_many: true, snapshots: true, ..Faults::default() });
        plan.delay = 200;
        plan.disk = 200;
    });
}

#[test]
fn copies_of_all_replicas_but_one_are_noticed_when_they_count_as_in_sync() {
    is_noticed(Sabotage::TrustStale, |plan| {
        let faults = Faults { rollback: true, rollback_many: true, ..Faults::default() };
        only(plan, Faults { close: true, ..faults });
        plan.flushes = 150;
        plan.trouble = 12;
    });
}
