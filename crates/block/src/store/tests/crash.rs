//! Power cuts at any moment.

use super::world::World;
use crate::store::files::sim::{Keep, Rng};

/// How many seeds a test tries: more on demand.
fn seeds(usual: u64) -> std::ops::Range<u64> {
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
        _ => Keep::Random(Rng::new(rng.next())),
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
            let mut after = world.after_cut(keep(&mut cuts));
            after.audit(true)?;
            after.audit(false)?;
            if cuts.one_in(2) {
                // What was seen once stays, also over the next cut.
                let mut again = after.after_cut(keep(&mut cuts));
                again.audit(true)?;
                world = again;
            }
        }
    }
    world.drain()?;
    world.audit(false)
}

#[test]
fn nothing_durable_is_lost_and_nothing_else_appears() {
    for seed in seeds(400) {
        let result = std::panic::catch_unwind(|| run(seed));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("seed {seed} (STORE_SEED={seed}): {error}"),
            Err(_) => panic!("seed {seed} panicked (STORE_SEED={seed})"),
        }
    }
}
