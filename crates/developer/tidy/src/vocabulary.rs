//! Names and messages that a search for the usual term would not find: type names that are
//! defined too often to mean anything, words of a private vocabulary, and messages whose subject
//! is a clause. See docs/glossary.md for the terms to use instead.

use std::collections::BTreeMap;

use crate::sources::{complain, is_test, rust};

/// A type name that is defined more often than this in the whole tree is too vague.
const MOST_DEFINITIONS: usize = 4;

/// Names that were replaced by standard terms, and the terms.
const REPLACED: &[(&str, &str)] = &[
    ("Photographer", "SnapshotReconciler"),
    ("Clerk", "VmBackupReconciler"),
    ("Archivist", "VolumeSnapshotReconciler"),
    ("Librarian", "VmTemplateReconciler"),
    ("Keeper", "…Reconciler or …Controller"),
    ("Interest", "EventMapper"),
    ("Touch", "ObjectChange"),
    ("Doing", "ErrorContext"),
    ("Doors", "AdmissionQueues"),
    ("Visit", "RequestTicket"),
    ("Bell", "ChangeNotifier"),
    ("Board", "AttachedVolumes"),
    ("Teller", "StatusWriter"),
    ("Believing", "NoCertVerification"),
    ("PATIENCE", "…_TIMEOUT"),
    ("FAREWELL", "…_TIMEOUT"),
    ("BACKINGS", "LONGHORN_VOLUMES"),
];

/// Messages do not begin with these: a noun is their subject.
const CLAUSES: &[&str] =
    &["who ", "whoever ", "what ", "whatever ", "which ", "nobody ", "somebody "];

/// Parts of identifiers that say too little: use report, notify, status, message, reply.
const VAGUE_VERBS: &[&str] = &["told", "tell", "tells", "telling", "teller"];

/// The item that a line defines, if it does: its keyword and its name.
fn definition(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_item = matches!(keyword, "struct" | "enum" | "trait" | "type" | "const" | "static");
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (is_item && end > 0).then(|| (keyword, &rest[..end]))
}

/// The definitions outside tests, as `file:line`, by name. Associated types belong to their trait.
fn definitions() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let shipped = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    for file in rust().filter(|file| shipped(&file.path) && !is_test(&file.path)) {
        let code = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (index, line) in code.lines().enumerate() {
            match definition(line) {
                Some(("type", _)) if line.starts_with(' ') => {}
                Some((_, name)) => found.entry(name.to_owned()).or_default().push(format!(
                    "{}:{}",
                    file.path,
                    index + 1
                )),
                None => {}
            }
        }
    }
    found
}

#[test]
fn definitions_are_recognised() {
    let cases = [
        ("pub(crate) struct Place {", Some(("struct", "Place"))),
        ("    pub enum State<T> {", Some(("enum", "State"))),
        ("type Body = Vec<u8>;", Some(("type", "Body"))),
        ("pub const PATIENCE: u8 = 1;", Some(("const", "PATIENCE"))),
        ("impl Place {", None),
        ("// struct Place", None),
    ];
    for (line, expected) in cases {
        assert_eq!(definition(line), expected, "{line}");
    }
}

#[test]
fn type_names_say_which_one_of_many_they_are() {
    let is_type =
        |name: &str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    let vague: Vec<String> = definitions()
        .into_iter()
        .filter(|(name, places)| is_type(name) && places.len() > MOST_DEFINITIONS)
        .map(|(name, places)| format!("{name}: {}", places.join(" ")))
        .collect();
    complain("type names that are defined too often; say which: ReplicaPlacement", &vague);
}

#[test]
fn replaced_names_do_not_come_back() {
    let all = definitions();
    let found: Vec<String> = REPLACED
        .iter()
        .filter_map(|(name, term)| Some((name, term, all.get(*name)?)))
        .map(|(name, term, places)| format!("{name} (use {term}): {}", places.join(" ")))
        .collect();
    complain("names outside the standard vocabulary", &found);
}

#[test]
fn messages_have_a_noun_as_their_subject() {
    let logs = ["error!(", "warn!(", "info!(", "#[error("];
    let mut found = Vec::new();
    for file in rust().filter(|file| file.path.starts_with("crates/") && !is_test(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let Some(start) = logs.iter().find_map(|log| Some(line.find(log)? + log.len())) else {
                continue;
            };
            let message = line[start..].split('"').nth(1).unwrap_or_default();
            if CLAUSES.iter().any(|clause| message.starts_with(clause)) {
                found.push(format!("{}:{}: {message}", file.path, index + 1));
            }
        }
    }
    complain("messages that begin with a clause", &found);
}

/// The identifiers of a line with a vague verb as a part, outside of texts and comments.
fn vague_identifiers(line: &str) -> Vec<&str> {
    let is_vague = |part: &str| VAGUE_VERBS.iter().any(|verb| part.eq_ignore_ascii_case(verb));
    let code = line.split("//").next().unwrap_or_default().split('"').step_by(2);
    let names = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    names.filter(|name| name.split('_').any(is_vague)).collect()
}

#[test]
fn vague_identifiers_are_recognised() {
    for (line, expected) in [
        ("let told = is_told(1);", &["told", "is_told"][..]),
        ("Event::Told => tell_all(), // told", &["Told", "tell_all"]),
        ("let label = \"told\"; // tell", &[]),
        ("let retold = storyteller;", &[]),
    ] {
        assert_eq!(vague_identifiers(line), expected, "{line}");
    }
}

#[test]
fn identifiers_name_what_they_hold_or_do() {
    let mut found = Vec::new();
    for file in rust() {
        for (index, line) in file.text.lines().enumerate() {
            let line = line.replace("\\\"", "");
            let names = vague_identifiers(&line).into_iter();
            found.extend(names.map(|name| format!("{}:{}: {name}", file.path, index + 1)));
        }
    }
    complain("identifiers with told or tell; use report, notify, status, message", &found);
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim_start())
}

/// Whether a sentence of a comment begins with a clause instead of a noun.
fn begins_with_clause(comment: &str) -> bool {
    let words = ["What", "Whatever", "Who", "Whoever"];
    let starts = |text: &str| words.contains(&text.split([' ', ',']).next().unwrap_or_default());
    let sentences = [". ", "! ", "? "].into_iter().flat_map(|end| comment.split(end).skip(1));
    starts(comment) || sentences.into_iter().any(starts)
}

#[test]
fn sentences_that_begin_with_a_clause_are_recognised() {
    for (line, expected) in [
        ("/// What is not known is asked for.", true),
        ("    // Read again. Who asked before is answered first.", true),
        ("//! Whoever holds the lock", true),
        ("/// The rights of a user, and what they are for.", false),
        ("/// Whole files only.", false),
        ("let text = \"What now?\";", false),
    ] {
        assert_eq!(comment(line).is_some_and(begins_with_clause), expected, "{line}");
    }
}

#[test]
fn comments_have_a_noun_as_their_subject() {
    let mut found = Vec::new();
    for file in rust().filter(|file| !file.path.ends_with("tidy/src/vocabulary.rs")) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(comment) = comment(line).filter(|comment| begins_with_clause(comment)) {
                found.push(format!("{}:{}: {comment}", file.path, index + 1));
            }
        }
    }
    complain("comments with a sentence that begins with a clause", &found);
}
