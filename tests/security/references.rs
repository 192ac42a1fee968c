//! Every field that can name an object of another namespace has a rule that authorizes it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Sheaf;

const RULES: &str = include_str!("references.txt");
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
