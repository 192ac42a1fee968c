//! Waiting for a condition, with a bound.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; a test that passes does not wait for it.
const BOUND: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(25);

/// Asks until there is an answer; the last complaint tells why there was none.
#[track_caller]
pub(crate) fn poll<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) if began.elapsed() > BOUND => panic!("waited in vain: {what}: {why}"),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Asks until the answer is yes.
#[track_caller]
pub(crate) fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    poll(what, || if ask() { Ok(()) } else { Err("not yet".to_owned()) });
}
