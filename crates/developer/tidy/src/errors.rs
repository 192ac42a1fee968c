//! Errors have types: no function fails with a text, and no error prints its source.

use crate::invariants::code;
use crate::sources::{complain, is_test, rust};
use crate::tree::SourceFile;

/// Where some errors are texts. One that has none any more fails.
const UNTYPED: &[(&str, &str)] = &[
    ("crates/developer/tidy/src/errors.rs", "texts of these tests"),
    ("crates/foundation/hci/", "TODO(#14): values of settings and annotations"),
    ("crates/node/block/", "TODO(#14): reports of the storage process"),
    ("crates/program/sheaf/src/cli/", "values of flags: clap shows the text"),
];

/// The arguments of a generic type whose text begins after its `<`.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' if before == '-' => {}
            ',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            '>' | ')' | ']' if depth > 0 => depth -= 1,
            '>' | ')' | ']' => {
                found.push(text[begin..at].trim());
                return found;
            }
            _ => {}
        }
        before = letter;
    }
    Vec::new()
}

/// The lines at which a `Result` begins whose error is a `String`.
fn text_errors(text: &str) -> Vec<usize> {
    let (mut joined, mut begins) = (String::new(), Vec::new());
    for (line, text) in code(text) {
        begins.push((joined.len(), line));
        joined.push_str(text);
        joined.push('\n');
    }
    let is_text = |at: &usize| {
        let arguments = arguments(&joined[at + "Result<".len()..]);
        arguments.get(1).is_some_and(|error| *error == "String")
    };
    let places = joined.match_indices("Result<").map(|(at, _)| at).filter(is_text);
    let line = |at: usize| begins.iter().rev().find(|(begin, _)| *begin <= at).map(|own| own.1);
    places.filter_map(line).collect()
}

/// The places of text errors, and exceptions that nothing needs.
fn violations(files: &[SourceFile], except: &[(&str, &str)]) -> Vec<String> {
    let mut unused: Vec<&str> = except.iter().map(|(path, _)| *path).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.contains("/src/") && !is_test(&file.path)) {
        let lines = text_errors(&file.text);
        if lines.is_empty() {
            continue;
        }
        match except.iter().find(|(path, _)| file.path.starts_with(path)) {
            Some((path, _)) => unused.retain(|own| own != path),
            None => found.extend(lines.iter().map(|line| format!("{}:{line}", file.path))),
        }
    }
    found.extend(unused.iter().map(|path| format!("{path} is no exception")));
    found
}

#[test]
fn errors_are_no_texts() {
    let files: Vec<SourceFile> = rust().collect();
    complain("an error is an enum, not a String", &violations(&files, UNTYPED));
}

#[test]
fn text_errors_are_found_outside_tests_and_exceptions() {
    let file = |path: &str| {
        let text = "fn a() -> Result<(), String> {}".into();
        SourceFile { path: path.into(), text }
    };
    let files = [
        file("crates/a/b/src/c.rs"),
        file("crates/a/b/src/c/tests.rs"),
        file("crates/a/d/src/e.rs"),
    ];
    let except = [("crates/a/d/", "old"), ("crates/a/f/", "gone")];
    let expected = ["crates/a/b/src/c.rs:1", "crates/a/f/ is no exception"];
    assert_eq!(violations(&files, &except), expected);
}

#[test]
fn text_errors_are_found_over_lines_and_in_other_types() {
    for (text, expected) in [
        ("fn a() -> Result<(), String> {}", vec![1]),
        ("fn a()\n-> Result<\n    Vec<u8>,\n    String,\n> {}", vec![2]),
        ("fn a() -> Result<Result<(u8, u8), String>, Error> {}", vec![1]),
        ("type A = fn(&str) -> Result<Option<fn() -> u8>, String>;", vec![1]),
        ("fn a() -> Result<BTreeMap<String, String>, Error> {}", vec![]),
        ("fn a() -> Result<String, Error> {}", vec![]),
        ("// Result<(), String>\n#[cfg(test)]\nmod tests {\nResult<(), String>\n}", vec![]),
    ] {
        assert_eq!(text_errors(text), expected, "{text}");
    }
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
