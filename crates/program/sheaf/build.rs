//! Builds the commit into the binary, where git knows it.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads/main");
    let ask = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let commit = ask(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    // The commit's own date: the same source gives the same binary.
    let date = ask(&["log", "-1", "--format=%cd", "--date=format:%Y-%m-%dT%H:%M:%SZ"])
        .unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned());
    println!("cargo:rustc-env=SHEAF_COMMIT={commit}");
    println!("cargo:rustc-env=SHEAF_BUILD_DATE={date}");
}
