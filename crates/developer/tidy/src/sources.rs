//! Required and forbidden content of source files.

use crate::tree::{SourceFile, sources};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager"];

/// Parts of paths that exist on one developer's machine only. Split, so that this file may
/// name them.
const PRIVATE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Larger than this is data that should be made, not kept.
const LARGEST_FILE: usize = 500_000;

/// No file of a crate is longer than this, but for tests.
const LONGEST_FILE: usize = 400;

/// Longer files, and why. One that is not needed any more fails.
const LONG_FILES: &[(&str, &str)] = &[
    ("crates/node/block/src/run/host.rs", "TODO(#14): split when its present changes are done"),
    ("crates/node/block/src/sim/disk.rs", "TODO(#14): as run/host.rs"),
    ("crates/node/block/src/sim/oracle.rs", "TODO(#14): as run/host.rs"),
    ("crates/node/block/src/store/layer.rs", "TODO(#14): as run/host.rs"),
];

pub(crate) fn rust() -> impl Iterator<Item = SourceFile> {
    sources().into_iter().filter(|file| file.path.ends_with(".rs"))
}

pub(crate) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("tests/")
}

pub(crate) fn complain(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn long_modules_say_what_they_own() {
    let silent: Vec<String> = rust()
        .filter(|file| !is_test(&file.path))
        .filter(|file| file.text.lines().count() > 100 && !file.text.starts_with("//!"))
        .map(|file| file.path)
        .collect();
    complain("modules over 100 lines without `//!`", &silent);
}

/// Files that hold more than one idea, by their length, and exceptions that nothing needs.
fn long_files(files: &[SourceFile], except: &[(&str, &str)]) -> Vec<String> {
    let mut unused: Vec<&str> = except.iter().map(|(path, _)| *path).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/")) {
        let (path, lines) = (file.path.as_str(), file.text.lines().count());
        if is_test(path) || lines <= LONGEST_FILE {
            continue;
        }
        if unused.contains(&path) {
            unused.retain(|own| *own != path);
        } else {
            found.push(format!("{path} ({lines} lines)"));
        }
    }
    found.extend(unused.iter().map(|path| format!("{path} is no exception")));
    found
}

#[test]
fn files_hold_one_idea() {
    let files: Vec<SourceFile> = rust().collect();
    complain("files over 400 lines: split them by idea", &long_files(&files, LONG_FILES));
}

#[test]
fn long_files_are_found_outside_tests() {
    let file =
        |path: &str, lines: usize| SourceFile { path: path.into(), text: "a\n".repeat(lines) };
    let files = [
        file("crates/node/agent/src/plan.rs", 401),
        file("crates/node/agent/src/short.rs", 400),
        file("crates/node/agent/src/plan/tests.rs", 500),
        file("crates/node/block/src/plan.rs", 500),
        file("tests/cluster.rs", 500),
    ];
    let except =
        [("crates/node/block/src/plan.rs", "one table"), ("crates/node/agent/src/short.rs", "")];
    let expected = [
        "crates/node/agent/src/plan.rs (401 lines)",
        "crates/node/agent/src/short.rs is no exception",
    ];
    assert_eq!(long_files(&files, &except), expected);
}

#[test]
fn modules_are_named_after_what_they_are_about() {
    let empty: Vec<String> = rust()
        .map(|file| file.path)
        .filter(|path| {
            let mut parts = path.trim_end_matches(".rs").split('/');
            path.ends_with("/mod.rs") || parts.any(|part| EMPTY_NAMES.contains(&part))
        })
        .collect();
    complain("names that say nothing", &empty);
}

#[test]
fn nothing_of_one_machine_is_in_the_tree() {
    let mut found = Vec::new();
    for file in sources().iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (index, line) in file.text.lines().enumerate() {
            if PRIVATE_PATHS.iter().any(|part| mentions(line, part)) {
                found.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    complain("paths of a developer's machine", &found);
}

/// Whether a path begins with `part` here; `example.com/home/` is none.
fn mentions(line: &str, part: &str) -> bool {
    line.match_indices(part).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "/.-_}*~".contains(c))
    })
}

#[test]
fn open_work_has_an_issue() {
    let marker = concat!("TO", "DO");
    let found: Vec<String> = rust()
        .flat_map(|file| {
            let lines = file.text.lines().enumerate();
            let bad = lines.filter(|(_, line)| {
                line.split_once("//").is_some_and(|(_, comment)| {
                    comment.contains(marker) && !comment.contains(&format!("{marker}(#"))
                })
            });
            bad.map(|(index, _)| format!("{}:{}", file.path, index + 1)).collect::<Vec<_>>()
        })
        .collect();
    complain("a TODO is written `TODO(#12): …`", &found);
}

#[test]
fn no_file_is_larger_than_people_read() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|file| file.text.len() > LARGEST_FILE)
        .map(|file| format!("{} ({} bytes)", file.path, file.text.len()))
        .collect();
    complain("too large", &found);
}
