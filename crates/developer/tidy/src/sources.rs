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

/// Crates in which no file outside tests is longer than this.
const SHORT_CRATES: &[&str] = &["crates/control-plane/controllers/src/", "crates/node/agent/src/"];
const LONGEST_FILE: usize = 400;

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

/// Files of short crates that hold more than one idea, by their length.
fn long_files(files: &[SourceFile]) -> Vec<String> {
    let in_short_crate = |path: &str| SHORT_CRATES.iter().any(|own| path.starts_with(own));
    files
        .iter()
        .filter(|file| in_short_crate(&file.path) && !is_test(&file.path))
        .map(|file| (file.path.as_str(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| format!("{path} ({lines} lines)"))
        .collect()
}

#[test]
fn files_of_short_crates_hold_one_idea() {
    let files: Vec<SourceFile> = rust().collect();
    complain("files over 400 lines: split them by idea", &long_files(&files));
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
    ];
    assert_eq!(long_files(&files), ["crates/node/agent/src/plan.rs (401 lines)"]);
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
fn errors_do_not_print_their_source() {
    let found: Vec<String> = rust()
        .flat_map(|file| {
            let lines = file.text.lines().enumerate();
            let bad = lines.filter(|(_, line)| {
                line.trim_start().starts_with("#[error(") && line.contains("{source}")
            });
            bad.map(|(index, _)| format!("{}:{}", file.path, index + 1)).collect::<Vec<_>>()
        })
        .collect();
    complain("the chain prints the source already", &found);
}

#[test]
fn what_is_left_to_do_has_an_issue() {
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
