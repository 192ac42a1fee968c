//! The report of `scripts/test`: a command for every test that failed and no other, and the sums.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

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
    store::reports

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
fn the_report_has_a_command_for_each_failed_test_and_ends_with_the_sums() {
    let file = std::env::temp_dir().join(format!("tidy-{}.log", std::process::id()));
    std::fs::write(&file, SAID).unwrap();
    let report =
        Command::new(root().join("scripts/test")).arg("--report").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    // The program that died named no test: it is repeated as a whole.
    let expected = "\
Failed, and how to repeat it:
  cargo test --locked -p sheaf --test e2e
  cargo test --locked -p store --lib -- --exact store::keeps
  cargo test --locked -p store --lib -- --exact store::reports
2 passed, 2 failed
";
    assert_eq!(String::from_utf8_lossy(&report.stdout), expected);
}

/// Runs the script with a `cargo` that says that tests failed, and that they pass alone.
fn attempts(confirmations: Option<&str>, alone: &str) -> (bool, String) {
    let bin = tempfile::tempdir().unwrap();
    let said = SAID.replace("error: test failed, to rerun pass `-p sheaf --test e2e`", "");
    std::fs::write(bin.path().join("all"), said).unwrap();
    std::fs::write(bin.path().join("alone"), alone).unwrap();
    let cargo = "#!/bin/sh\ncd \"${0%/*}\"\n\
        case \"$*\" in *--exact*) cat alone; exit 0 ;; *) cat all; exit 101 ;; esac\n";
    let program = bin.path().join("cargo");
    std::fs::write(&program, cargo).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut script = Command::new(root().join("scripts/test"));
    script.env("PATH", format!("{}:/usr/bin:/bin", bin.path().display()));
    script.env_remove("CONFIRM_FAILURES");
    if let Some(most) = confirmations {
        script.env("CONFIRM_FAILURES", most);
    }
    let output = script.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn tests_are_attempted_once() {
    let passes = "test result: ok. 1 passed; 0 failed\n";
    let (succeeded, said) = attempts(None, passes);
    assert!(!succeeded && said.ends_with("2 passed, 2 failed\n"), "{said}");
    // CI repeats a few alone, and names them.
    let (succeeded, said) = attempts(Some("3"), passes);
    assert!(succeeded && said.contains("Flaky"), "{said}");
    assert!(said.ends_with("4 passed, 0 failed\n"), "{said}");
    // Not one that fails again, not many, and none whose name nothing answers to.
    for (most, alone) in [
        ("3", "test result: FAILED. 0 passed; 1 failed\n"),
        ("1", passes),
        ("3", "test result: ok. 0 passed; 0 failed\n"),
    ] {
        let (succeeded, said) = attempts(Some(most), alone);
        assert!(!succeeded, "{most} {alone}: {said}");
    }
}
