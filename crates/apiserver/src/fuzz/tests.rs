//! Bytes that no client should send, thrown at everything that reads them. Nothing may panic,
//! and what was read and written must read the same again.
//!
//! Each target begins with a corpus (`fuzz/<target>/*`, kept beside this file; every failure of
//! the past is in there) and changes it at random from a fixed seed. It runs for a moment with
//! the other tests; `SHEAF_FUZZ_SECONDS=600 cargo test -p apiserver fuzz` runs longer, from
//! another seed each time, and prints what to add to the corpus.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::selector::{FieldSelector, LabelSelector};
use crate::{crd, decode};

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

fn fuzz(target: &str, read: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let seeds = corpus(target);
    let seconds = std::env::var("SHEAF_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let (until, start) = match seconds {
        Some(seconds) => {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            (Some(Instant::now() + Duration::from_secs(seconds)), now.subsec_nanos().into())
        }
        None => (None, 0x5eed),
    };
    let mut random = Random(start | 1);
    let mut count = 0;
    loop {
        let input = match seeds.get(count) {
            Some(seed) => seed.clone(),
            None => changed(&mut random, &seeds[count % seeds.len()]),
        };
        let outcome = std::panic::catch_unwind(|| read(&input));
        assert!(
            outcome.is_ok(),
            "{target} cannot take this; keep it in src/fuzz/{target}: {:?}",
            String::from_utf8_lossy(&input)
        );
        count += 1;
        if until.map_or(count >= USUAL, |until| Instant::now() > until) {
            return;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn json_reads_back_as_it_was_read() {
    fuzz("json", |bytes| {
        if let Ok(parsed) = decode::json(bytes) {
            let written = parsed.value.to_string();
            let again = decode::json(written.as_bytes()).expect("what we wrote is JSON");
            assert_eq!(again.value, parsed.value);
        }
    });
}

#[test]
fn yaml_becomes_json_or_is_refused() {
    fuzz("yaml", |bytes| {
        if let Ok(parsed) = decode::yaml(bytes) {
            assert!(decode::json(parsed.value.to_string().as_bytes()).is_ok());
        }
    });
}

#[test]
fn protobuf_becomes_json_or_is_refused() {
    fuzz("protobuf", |bytes| {
        // The corpus is text: a base64 of the whole message.
        use base64::Engine as _;
        let raw = base64::engine::general_purpose::STANDARD.decode(bytes.trim_ascii());
        let raw = raw.unwrap_or_else(|_| bytes.to_vec());
        if let Ok(value) = types::decode(&raw)
            && let Ok(written) = types::encode(&value)
        {
            assert_eq!(types::decode(&written).ok(), Some(value), "it does not read back");
        }
    });
}

#[test]
fn selectors_are_read_or_refused() {
    fuzz("selector", |bytes| {
        let text = text(bytes);
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    });
}

/// An object that patches are tried on.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    })
}

#[test]
fn patches_apply_or_are_refused() {
    fuzz("patch", |bytes| {
        let Ok(parsed) = decode::yaml(bytes) else { return };
        let live = pod();
        let _ = merge::json_patch(&live, &parsed.value);
        let _ = merge::merge_patch(&live, &parsed.value);
        if let Some(schema) = types::schema("", "v1", "Pod") {
            let _ = merge::strategic_merge(&live, &parsed.value, &schema);
        }
    });
}

#[test]
fn applied_documents_merge_or_are_refused() {
    fuzz("apply", |bytes| {
        let Ok(parsed) = decode::yaml(bytes) else { return };
        let schema = types::schema("", "v1", "Pod").expect("pods have a schema");
        let _ = merge::to_field_set(&parsed.value, &schema);
        if let Ok(Some(merged)) = merge::merge(&pod(), &parsed.value, &schema) {
            let _ = merge::compare(&pod(), &merged, &schema);
        }
        if let Ok(set) = merge::Set::from_fields_v1(&parsed.value) {
            assert_eq!(merge::Set::from_fields_v1(&set.to_fields_v1()).ok(), Some(set));
        }
    });
}

#[test]
fn schemas_and_their_rules_are_judged() {
    fuzz("schema", |bytes| {
        let Ok(parsed) = decode::yaml(bytes) else { return };
        let definition = json!({"spec": {"group": "e.com", "names": {"plural": "as", "kind": "A"},
            "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": parsed.value}}]}});
        let _ = crd::validate(&definition, None);
    });
}

#[test]
fn expressions_are_judged() {
    fuzz("cel", |bytes| {
        let definition = json!({"spec": {"group": "e.com", "names": {"plural": "as", "kind": "A"},
            "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"n": {"type": "integer"},
                        "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}}},
                        "x-kubernetes-validations": [{"rule": text(bytes)}]}}}}}]}});
        let _ = crd::validate(&definition, None);
    });
}
