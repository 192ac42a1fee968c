//! The retries of `scripts/test`: it finds every test that failed, and no other.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::tree::root;

const SAID: &str = "
running 3 tests
..F
failures:

---- store::keeps stdout ----
    word
assertion failed: `a word`

failures:
    store::keeps
    store::tells

test result: FAILED. 1 passed; 2 failed; 0 ignored
error: test failed, to rerun pass `-p store --lib`

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored
error: test failed, to rerun pass `-p sheaf --test e2e`

Caused by:
  process didn't exit successfully: (signal: 6, SIGABRT: process abort signal)
error: 2 targets failed:
    `-p store --lib`
    `-p sheaf --test e2e`
";

#[test]
fn failed_tests_are_found_in_what_cargo_says() {
    let script = root().join("scripts/test");
    let mut child = Command::new(script)
        .args(["--failures", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(SAID.as_bytes()).unwrap();
    let found = child.wait_with_output().unwrap();
    // The program that died named no test: there is nothing to try again alone.
    let expected = "-p store --lib|store::keeps\n-p store --lib|store::tells\n\
                    -p sheaf --test e2e|\n";
    assert_eq!(String::from_utf8_lossy(&found.stdout), expected);
}
