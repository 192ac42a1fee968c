//! The two failures that were measured on Longhorn v1: here they fail on its design and pass
//! on ours.

use super::*;

/// Small random writes, 32 at a time, on a few blocks, over a network that delivers to each
/// replica in another order. Nothing fails.
fn overlapping(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    only(&mut plan, Faults::default());
    plan.depth = 32;
    plan.blocks = 6;
    plan.requests = 400;
    plan.reads = 0;
    plan.flushes = 0;
    plan.zeroes = 0;
    plan.delay = 5000;
    plan.disk = 5000;
    plan.length = Time::from_millis(200);
    plan
}

/// The engine is killed with 64 writes under way; then every block is read.
fn killed(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    only(&mut plan, Faults::default());
    plan.depth = 64;
    plan.blocks = 32;
    plan.requests = 400;
    plan.reads = 0;
    plan.flushes = 0;
    plan.delay = 5000;
    plan.disk = 5000;
    plan.length = Time::from_millis(100);
    plan.kill_at_end = true;
    plan.final_reads = 6;
    plan
}

#[test]
fn overlapping_writes_at_depth_32_leave_replicas_alike() {
    for seed in 0..20 {
        run_plan(overlapping(seed)).unwrap();
    }
}

#[test]
fn overlapping_writes_make_replicas_diverge_in_the_old_design() {
    let mut plan = overlapping(1);
    plan.sabotage = Sabotage::NoLocks;
    let violation = run_plan(plan).unwrap_err();
    assert!(violation.what.contains("sector") || violation.what.contains("differs"), "{violation}");
}

#[test]
fn after_a_kill_at_depth_64_every_block_reads_the_same_six_times_and_everywhere() {
    for seed in 0..20 {
        run_plan(killed(seed)).unwrap();
    }
}

#[test]
fn after_a_kill_the_old_design_reads_different_blocks_each_time() {
    let broken = (0..20).filter(|seed| {
        let mut plan = killed(*seed);
        plan.sabotage = Sabotage::NoReconcile;
        run_plan(plan).is_err()
    });
    let broken = broken.count();
    assert!(broken >= 5, "the old design got away with it in {} of 20 runs", 20 - broken);
}
