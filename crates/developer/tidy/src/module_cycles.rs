//! Modules of one crate that name each other. The top-level modules of the crates listed here are
//! layers: each names only those below it, so that one can be read without all the others.
//!
//! An edge is a path from the root of the crate (`crate::vmi::…`, or as many `super` as lead there)
//! outside tests. A name that the root itself re-exports is not followed.

use std::collections::{BTreeMap, BTreeSet};

use crate::invariants::code;
use crate::sources::{complain, is_test, rust};
use crate::tree::SourceFile;

/// Folders of the crates without cycles.
const ACYCLIC: &[&str] = &[
    "crates/node/agent/src/",
    "crates/control-plane/controllers/src/",
    "crates/program/sheaf/src/",
];

/// The modules that each module names, and the first place of each name.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

fn is_root(path: &str) -> bool {
    matches!(path, "lib.rs" | "main.rs")
}

/// The modules from the root of the crate to that of a file.
fn module_path(file: &str) -> Vec<&str> {
    file.trim_end_matches(".rs").split('/').collect()
}

/// The first names of the paths in `{a::b, c}`, or of a path that begins with a name.
fn first_names(text: &str) -> Vec<&str> {
    let name = |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let Some(group) = text.strip_prefix('{') else {
        return vec![&text[..name(text).unwrap_or(text.len())]];
    };
    let (mut depth, mut begins, mut names) = (0, true, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !letter.is_whitespace() => {
                let rest = &group[at..];
                names.push(&rest[..name(rest).unwrap_or(rest.len())]);
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// The rest of each path that leads to the root of the crate, with its line, in the text of a module
/// that lies `depth` modules below the root.
fn from_root(text: &str, depth: usize) -> Vec<(usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let climb = "super::".repeat(depth);
    let mut found = Vec::new();
    for prefix in ["crate::", climb.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            let rest = &text[at + prefix.len()..];
            if !text[..at].ends_with(is_word) && !rest.starts_with("super::") {
                found.push((text[..at].matches('\n').count() + 1, rest));
            }
        }
    }
    found
}

/// The text outside tests, with its comments as empty lines.
fn shipped(text: &str) -> String {
    let mut lines = Vec::new();
    for (number, line) in code(text) {
        lines.resize(number - 1, "");
        lines.push(line);
    }
    lines.join("\n")
}

/// The edges between the top-level modules of the crate in a folder.
fn edges(files: &[SourceFile], folder: &str) -> Edges {
    let own = |file: &SourceFile| file.path.strip_prefix(folder).map(str::to_owned);
    let modules: BTreeSet<String> = files
        .iter()
        .filter_map(own)
        .filter(|path| !is_root(path))
        .map(|path| module_path(&path)[0].to_owned())
        .collect();
    let mut edges = Edges::new();
    for file in files.iter().filter(|file| !is_test(&file.path)) {
        let Some(path) = own(file).filter(|path| !is_root(path)) else { continue };
        let (module, text) = (module_path(&path), shipped(&file.text));
        for (line, rest) in from_root(&text, module.len()) {
            for name in first_names(rest) {
                if name != module[0] && modules.contains(name) {
                    let from = edges.entry(module[0].to_owned()).or_default();
                    from.entry(name.to_owned()).or_insert_with(|| format!("{path}:{line}"));
                }
            }
        }
    }
    edges
}

/// The modules that can be reached from one.
fn reach<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(name) = next.pop() {
        for used in edges.get(&name).into_iter().flat_map(|used| used.keys()) {
            if seen.insert(used.as_str()) {
                next.push(used.clone());
            }
        }
    }
    seen
}

/// The edges that are part of a cycle.
fn cycles(edges: &Edges) -> Vec<String> {
    let pairs = edges.iter().flat_map(|(from, used)| used.iter().map(move |to| (from, to)));
    let in_cycle = pairs.filter(|(from, (to, _))| reach(edges, to).contains(from.as_str()));
    in_cycle.map(|(from, (to, place))| format!("{from} names {to} in {place}")).collect()
}

#[test]
fn modules_are_layers() {
    let files: Vec<SourceFile> = rust().collect();
    for folder in ACYCLIC {
        let edges = edges(&files, folder);
        assert!(!edges.is_empty(), "no module of {folder} names another");
        complain(&format!("modules of {folder} in a cycle"), &cycles(&edges));
    }
}

#[test]
fn a_cycle_is_found_in_all_forms_of_paths() {
    let file = |path: &str, text: &str| SourceFile {
        path: format!("crates/node/a/src/{path}"),
        text: text.into(),
    };
    let files = [
        file("lib.rs", "mod disk;\nmod guest;\nmod host;\nmod net;\nmod tap;"),
        file(
            "guest/plan.rs",
            "// crate::tap\nuse crate::{\n    disk::{Disk, net},\n    host::Cpu,\n};",
        ),
        file("host.rs", "fn a() { super::disk::read() }"),
        file("disk/file.rs", "use super::super::net;\nuse super::host;"),
        file("net.rs", "use othercrate::guest;\n#[cfg(test)]\nmod tests { use crate::guest; }"),
        file("net/tests.rs", "use crate::guest;"),
        file("tap.rs", "use crate::guest::Guest;"),
    ];
    let found = edges(&files, "crates/node/a/src/");
    let pairs: Vec<String> = found
        .iter()
        .flat_map(|(from, used)| used.iter().map(move |(to, at)| format!("{from} {to} {at}")))
        .collect();
    let expected = [
        "disk net disk/file.rs:1",
        "guest disk guest/plan.rs:2",
        "guest host guest/plan.rs:2",
        "host disk host.rs:1",
        "tap guest tap.rs:1",
    ];
    assert_eq!(pairs, expected);
    assert!(cycles(&found).is_empty());
    let closing = file("net/port.rs", "fn a() {\n    crate::guest::name()\n}");
    let files: Vec<SourceFile> = files.into_iter().chain([closing]).collect();
    let expected = [
        "disk names net in disk/file.rs:1",
        "guest names disk in guest/plan.rs:2",
        "guest names host in guest/plan.rs:2",
        "host names disk in host.rs:1",
        "net names guest in net/port.rs:2",
    ];
    assert_eq!(cycles(&edges(&files, "crates/node/a/src/")), expected);
}
