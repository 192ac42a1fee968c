use super::*;

/// How many seeds an ordinary run of the tests takes; `SHEAF_SIM_SEEDS` asks for another number.
fn seeds() -> u64 {
    std::env::var("SHEAF_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

#[test]
fn volumes_survive_what_the_seeds_bring() {
    let mut total = Outcome::default();
    for seed in 0..seeds() {
        match run_seed(seed) {
            Ok(outcome) => {
                total.events += outcome.events;
                total.acked_writes += outcome.acked_writes;
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    eprintln!("{total:?}");
}
