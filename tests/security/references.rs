//! Every field that can name an object of another namespace has a rule that authorizes it, and every
//! annotation of our domain a rule about its writers.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::harness::Sheaf;

const RULES: &str = include_str!("references.txt");
const ANNOTATIONS: &str = include_str!("annotations.txt");
const WRITERS: [&str; 4] = ["refused", "administrator", "own", "other"];
const KNOWN: [&str; 9] = [
    "requester",
    "service-account",
    "claim",
    "data-volume",
    "machine",
    "network",
    "own",
    "refused",
    "administrator",
];
/// How fields end that name a namespace, hold `NAMESPACE/NAME`, or name a class, which can be that
/// of an image.
const ENDS: [&str; 5] = ["amespace", "Id", "Ids", "etworkName", "torageClassName"];

fn is_reference(name: &str) -> bool {
    // The identifier of a disk in oVirt.
    name != "diskId" && ENDS.iter().any(|end| name.ends_with(end))
}

/// Adds the paths of references below a schema.
fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && matches!(name.as_str(), "status" | "metadata") {
            continue;
        }
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        if is_reference(name) {
            found.insert(path.clone());
        }
        walk(below, &path, found);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), found);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &format!("{path}{{}}"), found);
    }
}

#[test]
fn every_reference_to_another_namespace_has_a_rule() {
    let sheaf = Sheaf::start();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definitions = sheaf.http().get(path).ok();
    let mut served = BTreeSet::new();
    for definition in definitions["items"].as_array().unwrap() {
        let spec = &definition["spec"];
        let kind = format!(
            "{} {}",
            spec["group"].as_str().unwrap(),
            spec["names"]["kind"].as_str().unwrap()
        );
        for version in spec["versions"].as_array().unwrap() {
            let mut found = BTreeSet::new();
            walk(&version["schema"]["openAPIV3Schema"], "", &mut found);
            served.extend(found.into_iter().map(|path| format!("{kind} {path}")));
        }
    }
    assert!(served.len() > 50, "the walk finds references: {served:?}");
    let mut ruled = BTreeSet::new();
    for line in RULES.lines().filter(|line| !line.starts_with('#')) {
        let (field, rule) = line.rsplit_once(' ').unwrap();
        assert!(KNOWN.contains(&rule), "unknown rule: {line}");
        ruled.insert(field.to_owned());
    }
    let missing: Vec<_> = served.difference(&ruled).collect();
    assert!(missing.is_empty(), "decide who is authorized for these fields: {missing:#?}");
    let gone: Vec<_> = ruled.difference(&served).collect();
    assert!(gone.is_empty(), "these fields are not served any more: {gone:#?}");
}

/// Adds the keys of our domain that the sources below a folder name, except those of tests.
fn keys(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("tests") || name == "developer" {
            continue;
        }
        if path.is_dir() {
            keys(&path, found);
            continue;
        }
        if !name.ends_with(".rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        found.extend(code.split('"').filter(|part| is_own_key(part)).map(str::to_owned));
    }
}

fn is_own_key(text: &str) -> bool {
    let is_plain = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !text.is_empty() && text.bytes().all(fits)
    };
    text.split_once('/').is_some_and(|(domain, name)| {
        let ends = domain.ends_with("sheaf.io") || domain.ends_with("sheaf.dev");
        ends && is_plain(domain) && is_plain(name)
    })
}

#[test]
fn every_annotation_of_ours_has_a_rule() {
    let mut used = BTreeSet::new();
    keys(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut used);
    assert!(used.len() > 50, "the walk finds keys: {used:?}");
    let mut ruled = BTreeSet::new();
    for line in ANNOTATIONS.lines().filter(|line| !line.starts_with('#')) {
        let (key, rule) = line.rsplit_once(' ').unwrap();
        assert!(WRITERS.contains(&rule), "unknown rule: {line}");
        ruled.insert(key.to_owned());
    }
    let missing: Vec<_> = used.difference(&ruled).collect();
    assert!(missing.is_empty(), "decide who writes these annotations: {missing:#?}");
    let gone: Vec<_> = ruled.difference(&used).collect();
    assert!(gone.is_empty(), "these annotations are not in the code any more: {gone:#?}");
}
