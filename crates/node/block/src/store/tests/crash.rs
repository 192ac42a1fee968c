//! Power cuts and killed processes, at any moment.

use super::world::{Audit, World};
use crate::store::files::sim::{Keep, Rng};

/// How many seeds a test tries: more on demand.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = std::env::var("STORE_SEED").ok().and_then(|text| text.parse().ok());
    let count = std::env::var("STORE_SEEDS").ok().and_then(|text| text.parse().ok());
    match (first, count) {
        (Some(first), count) => first..first + count.unwrap_or(1),
        (None, count) => 0..count.unwrap_or(usual),
    }
}

fn keep(rng: &mut Rng) -> Keep {
    match rng.below(6) {
        0 => Keep::Nothing,
        1 => Keep::Everything,
        2 => Keep::Alternate,
        _ => Keep::Random(Rng::new(rng.draw())),
    }
}

/// Runs one world; at many moments the power goes in a copy of it, and sometimes in itself.
fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    let mut cuts = Rng::new(seed ^ 0xc0ffee);
    let length = 100 + cuts.below(500);
    for _ in 0..length {
        world.step()?;
        if cuts.one_in(40) {
            let mut after = world.after_kill();
            after.audit(Audit::AfterKill)?;
            after.audit(Audit::Steady)?;
            if cuts.one_in(4) {
                world = after;
            }
        }
        if cuts.one_in(40) {
            let mut after = world.after_cut(keep(&mut cuts));
            after.audit(Audit::AfterCut)?;
            after.audit(Audit::Steady)?;
            if cuts.one_in(2) {
                // Data that was read once stays, also over the next cut.
                let mut again = after.after_cut(keep(&mut cuts));
                again.audit(Audit::AfterCut)?;
                world = again;
            }
        }
    }
    world.drain()?;
    world.audit(Audit::Steady)
}

/// As [`run`], while metadata on disk is verified: nothing is damaged, and nothing is found.
fn run_verified(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    world.verifies = true;
    for _ in 0..600 {
        world.step()?;
    }
    world.drain()?;
    match world.repaired {
        0 => world.audit(Audit::Steady),
        repaired => Err(format!("{repaired} pieces of intact metadata were written again")),
    }
}

/// A power cut tears copies, which a verification repairs.
fn run_verified_and_cut(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    world.verifies = true;
    let mut cuts = Rng::new(seed ^ 0x7e51);
    for _ in 0..400 {
        world.step()?;
        if cuts.one_in(40) {
            let (mut after, when) = match cuts.below(2) {
                0 => (world.after_kill(), Audit::AfterKill),
                _ => (world.after_cut(keep(&mut cuts)), Audit::AfterCut),
            };
            after.audit(when)?;
            after.audit(Audit::Steady)?;
            if cuts.one_in(2) {
                world = after;
            }
        }
    }
    world.drain()?;
    world.audit(Audit::Steady)
}

#[test]
fn verification_beside_everything_else_finds_nothing() {
    all(seeds(40), run_verified);
}

#[test]
fn verification_after_crashes_loses_nothing() {
    all(seeds(40), run_verified_and_cut);
}

/// Seeds that found something once. They keep checking the same places as long as the
/// generator of requests stays as it is.
const PINNED: [u64; 13] = [3, 15, 24, 27, 71, 105, 128, 206, 361, 476, 1082, 1352, 6709];

pub(super) fn all(seeds: impl Iterator<Item = u64>, run: fn(u64) -> Result<(), String>) {
    for seed in seeds {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("seed {seed} (STORE_SEED={seed}): {error}"),
            Err(_) => panic!("seed {seed} panicked (STORE_SEED={seed})"),
        }
    }
}

#[test]
fn nothing_durable_is_lost_and_nothing_else_appears() {
    all(seeds(40).chain(PINNED), run);
}

/// As [`run`], on a disk that is full most of the time.
fn run_tight(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    let mut cuts = Rng::new(seed ^ 0x00f0_11ed);
    world.tight = true;
    for _ in 0..300 {
        if cuts.one_in(20) {
            world.files.capacity = Some(world.files.used() + cuts.below(12));
        }
        world.step()?;
        if cuts.one_in(60) {
            let (mut after, when) = match cuts.below(2) {
                0 => (world.after_kill(), Audit::AfterKill),
                _ => (world.after_cut(keep(&mut cuts)), Audit::AfterCut),
            };
            after.audit(when)?;
            world = after;
        }
    }
    world.drain()?;
    world.files.capacity = None;
    world.audit(Audit::Steady)?;
    if world.failures == 0 && seed < 20 {
        return Err("the disk was never full".into());
    }
    Ok(())
}

#[test]
fn a_full_disk_costs_nothing_but_the_writes_that_were_refused() {
    all(seeds(25), run_tight);
}

/// Runs the steps in order and, before each operation on a file, cuts the power in every way; the
/// remaining content must be one of the allowed ones, and stay so.
fn enumerate(script: &[fn(&mut World)]) {
    let mut world = World::new(7);
    for (at, step) in script.iter().enumerate() {
        step(&mut world);
        for operation in 0.. {
            let keeps = [Keep::Nothing, Keep::Everything, Keep::Alternate];
            let random = (0..4).map(|seed| Keep::Random(Rng::new(seed * 1000 + operation)));
            for (way, keep) in keeps.into_iter().chain(random).enumerate() {
                let mut after = world.after_cut(keep);
                let audit = after.audit(Audit::AfterCut).and_then(|()| after.audit(Audit::Steady));
                let place = format!("step {at}, operation {operation}, way {way}");
                audit.unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            let mut after = world.after_kill();
            let audit = after.audit(Audit::AfterKill).and_then(|()| after.audit(Audit::Steady));
            audit.unwrap_or_else(|error| {
                panic!("step {at}, operation {operation}, killed: {error}")
            });
            if !world.complete_oldest().unwrap() {
                break;
            }
        }
    }
    world.drain().and_then(|()| world.audit(Audit::Steady)).unwrap();
}

#[test]
fn every_moment_of_writing_and_flushing_is_safe() {
    enumerate(&[
        |world| world.write(0, 2, false),
        |world| world.flush(),
        |world| world.write(1, 2, false),
        |world| world.write(511, 3, true),
        |world| world.zero(0, 2),
        |world| world.flush(),
        |world| world.write(0, 1, true),
    ]);
}

#[test]
fn every_moment_of_a_snapshot_and_a_revert_is_safe() {
    enumerate(&[
        |world| world.write(0, 3, true),
        |world| world.write(1, 1, false),
        |world| world.snapshot(),
        |world| world.write(0, 1, true),
        |world| world.zero(2, 1),
        |world| world.snapshot(),
        |world| world.write(2, 1, false),
        |world| world.revert(crate::ids::SnapshotId::from_u128(1)),
        |world| world.write(0, 1, true),
    ]);
}

/// Takes a snapshot as far as its cut.
fn cut(world: &mut World) {
    world.snapshot();
    while !world.is_cut() {
        assert!(world.complete_oldest().unwrap(), "a snapshot is cut in the end");
    }
}

#[test]
fn every_moment_between_the_cut_of_a_snapshot_and_its_seal_is_safe() {
    enumerate(&[
        |world| world.write(0, 3, true),
        |world| world.write(1, 1, false),
        |world| world.prepare(),
        |world| {
            cut(world);
            world.write(1, 1, false);
            world.write(600, 1, false);
        },
        |world| {
            world.write(2, 2, false);
            cut(world);
            world.write(0, 1, true);
            world.zero(2, 1);
            world.flush();
        },
        |world| {
            cut(world);
            world.write(0, 2, false);
            world.flush();
            world.delete(crate::ids::SnapshotId::from_u128(1));
        },
    ]);
}

#[test]
fn every_moment_of_a_merge_up_is_safe() {
    enumerate(&[
        |world| world.write(0, 1, true),
        |world| world.snapshot(),
        |world| world.write(1, 2, false),
        |world| world.write(512, 1, true),
        |world| world.delete(crate::ids::SnapshotId::from_u128(1)),
        |world| world.replica.grant(1 << 30),
        |world| world.write(0, 1, false),
        |world| world.flush(),
    ]);
}

#[test]
fn every_moment_of_a_merge_down_is_safe() {
    enumerate(&[
        |world| world.write(0, 5, true),
        |world| world.write(512, 2, true),
        |world| world.snapshot(),
        |world| world.write(1, 1, false),
        |world| world.zero(2, 1),
        |world| world.flush(),
        |world| world.delete(crate::ids::SnapshotId::from_u128(1)),
        |world| {
            world.replica.grant(1 << 30);
            world.write(0, 1, false);
            world.write(513, 1, false);
        },
        |world| world.write(4, 1, true),
    ]);
}
