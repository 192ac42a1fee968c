//! Runs the simulator of a cluster: `cargo xtask sim --seeds 100000`, or `make sim SEEDS=100000`
//! on a machine that has nothing yet. The alias `xtask` is defined in `.cargo/config.toml`.
//!
//! `--from N` begins at another seed; `--seed N` runs one seed and prints what happens;
//! `--real-store` has replicas on the real store over simulated files, not on a model of one;
//! `--keep-going` does not stop at the first seed that fails.

use std::process::ExitCode;

use block::sim::{Outcome, Plan, run_plan};

const USAGE: &str = "usage: cargo xtask sim [--seeds N] [--from N] [--seed N] [--real-store] \
                     [--keep-going]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(("sim", arguments)) = arguments.split_first().map(|(task, rest)| (&**task, rest))
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(odd) = unknown(arguments) {
        eprintln!("{odd} is not understood\n{USAGE}");
        return ExitCode::from(2);
    }
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let real = arguments.iter().any(|argument| argument == "--real-store");
    let plan = |seed: u64| match real {
        true => Plan::from_seed(seed).with_real_store(),
        false => Plan::from_seed(seed),
    };
    if let Some(seed) = number("--seed") {
        let mut plan = plan(seed);
        plan.trace = true;
        eprintln!("{plan:#?}");
        return report(run_plan(plan).map(|outcome| eprintln!("{outcome:?}")));
    }
    let (from, count) = (number("--from").unwrap_or(0), number("--seeds").unwrap_or(10_000));
    let keep_going = arguments.iter().any(|argument| argument == "--keep-going");
    let mut failed = 0;
    let mut total = Outcome::default();
    for seed in from..from + count {
        match run_plan(plan(seed)) {
            Ok(outcome) => total.add(&outcome),
            Err(violation) => {
                eprintln!("{violation}");
                let store = if real { " --real-store" } else { "" };
                eprintln!("repeat it with: cargo xtask sim --seed {seed}{store}");
                failed += 1;
                if !keep_going {
                    return ExitCode::FAILURE;
                }
            }
        }
        if (seed - from + 1).is_multiple_of(1000) {
            eprintln!("{} seeds, {failed} failed", seed - from + 1);
        }
    }
    eprintln!("{total:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first argument that would otherwise be passed over.
fn unknown(arguments: &[String]) -> Option<&str> {
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let known = match argument {
            "--seeds" | "--from" | "--seed" => {
                arguments.next().is_some_and(|value| value.parse::<u64>().is_ok())
            }
            "--real-store" | "--keep-going" => true,
            _ => false,
        };
        if !known {
            return Some(argument);
        }
    }
    None
}

fn report(result: Result<(), block::sim::Violation>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(violation) => {
            eprintln!("{violation}");
            ExitCode::FAILURE
        }
    }
}
