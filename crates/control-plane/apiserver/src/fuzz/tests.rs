//! Corpora changed at random from a fixed seed, and thrown at each target.

use std::path::PathBuf;

use super::{FuzzTarget, TARGETS};

/// How many inputs a target sees in an ordinary run.
const USUAL: usize = 3_000;
const LARGEST: usize = 4_096;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }
}

/// Words of the grammars, so that changes are often nearly right.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "1e999",
    "-0",
    "0x",
    "---\n",
    "&a ",
    "*a",
    "<<: ",
    "!!binary ",
    "| \n",
    "\t",
    "in (",
    "notin",
    "!=",
    "==",
    "$patch",
    "$retainKeys",
    "$deleteFromPrimitiveList/a",
    "metadata",
    "spec",
    "apiVersion",
    "kind",
    "type",
    "properties",
    "items",
    "x-kubernetes-validations",
    "self",
    ".all(x, ",
    "has(",
    "??",
    "~1",
    "~0",
    "/-",
    "/99999999999",
    "f:",
    "k:{\"a\":1}",
    "v:1",
    "i:0",
    "9223372036854775808",
    "\u{feff}",
];

fn changed(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next().to_le_bytes()[0],
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            2 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            3 => bytes.truncate(at),
            4 => {
                let end = at + random.below(bytes.len() + 1 - at);
                let piece: Vec<u8> = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            _ => bytes.insert(at, random.next().to_le_bytes()[0]),
        }
        bytes.truncate(LARGEST);
    }
    bytes
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/fuzz").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no beginnings", dir.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn fuzz(name: &str) {
    let (_, target): &(_, FuzzTarget) =
        TARGETS.iter().find(|(own, _)| *own == name).expect("a target of that name");
    let seeds = corpus(name);
    let mut random = Random(0x5eed);
    for count in 0..USUAL {
        let input = match seeds.get(count) {
            Some(seed) => seed.clone(),
            None => changed(&mut random, &seeds[count % seeds.len()]),
        };
        let outcome = std::panic::catch_unwind(|| target(&input));
        assert!(
            outcome.is_ok(),
            "{name} cannot take this; keep it in src/fuzz/{name}: {:?}",
            String::from_utf8_lossy(&input)
        );
    }
}

#[test]
fn every_target_has_a_test() {
    let tested =
        ["json", "yaml", "protobuf", "selector", "patch", "apply", "schema", "cel", "object"];
    let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, tested);
}

#[test]
fn json_reads_back_as_it_was_read() {
    fuzz("json");
}

#[test]
fn yaml_becomes_json_or_is_refused() {
    fuzz("yaml");
}

#[test]
fn protobuf_becomes_json_or_is_refused() {
    fuzz("protobuf");
}

#[test]
fn selectors_are_read_or_refused() {
    fuzz("selector");
}

#[test]
fn patches_apply_or_are_refused() {
    fuzz("patch");
}

#[test]
fn applied_documents_merge_or_are_refused() {
    fuzz("apply");
}

#[test]
fn schemas_and_their_rules_are_judged() {
    fuzz("schema");
}

#[test]
fn expressions_are_judged() {
    fuzz("cel");
}

#[test]
fn objects_are_cleaned_and_judged() {
    fuzz("object");
}
