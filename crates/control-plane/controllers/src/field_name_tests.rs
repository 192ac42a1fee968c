//! Every field that is read or written by its name exists in the schema of a kind.
//!
//! Objects are JSON here, so a misspelt name would read as empty without any complaint. Names are
//! found as paths (`"/spec/running"`), as chains of indices (`["spec"]["running"]`) and as fields of
//! records (`fields!`). A path that begins at an object is searched at the roots of all kinds, any
//! other at every type.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use serde_json::{Map, Value};
use types::Kind;
use types::openapi::{OpenApiVersion, schemas};

use crate::source_files;

/// Paths that no schema describes, with the reason.
const UNDESCRIBED: &[(&str, &str)] = &[
    ("/encryption", "a parameter of the source of backing images"),
    ("/accessKeyId", "JSON in the value of the setting backup-target"),
    ("/secretAccessKey", "JSON in the value of the setting backup-target"),
    ("/virtualHostedStyle", "JSON in the value of the setting backup-target"),
    ("/refreshIntervalInSeconds", "JSON in the value of the setting backup-target"),
    ("/recurringJobSelector", "a parameter of storage classes"),
    ("/isGroup", "JSON in a parameter of storage classes"),
    ("/longhornnode", "a label"),
    ("/api/v1/namespaces", "a path of the API"),
];

/// Fields with which a path begins at the root of an object.
const ROOTS: &[&str] = &["spec", "status"];

/// The schemas of all kinds, and of the built-in types that they refer to.
struct Schemas {
    roots: Vec<Value>,
    types: Vec<Value>,
    builtin: Map<String, Value>,
}

impl Schemas {
    fn load() -> Self {
        let kinds: Vec<Kind> = types::group_versions()
            .flat_map(|(group, version)| Kind::all(group, version))
            .collect();
        let builtin = schemas(&kinds, &[], OpenApiVersion::V2);
        let mut roots: Vec<Value> =
            kinds.iter().filter_map(|kind| builtin.get(&kind.openapi_name()).cloned()).collect();
        for definition in hci::definitions().chain(virt::definitions()) {
            for version in crate::object::list(&definition, "/spec/versions") {
                let mut schema = version["schema"]["openAPIV3Schema"].clone();
                schema["properties"]["metadata"] = builtin[META].clone();
                roots.push(schema);
            }
        }
        let mut own = Self { roots, types: Vec::new(), builtin };
        let mut seen = BTreeSet::new();
        let mut todo: Vec<Value> = own.roots.clone();
        todo.extend(own.builtin.values().cloned());
        while let Some(schema) = todo.pop() {
            let parts = schema["properties"].as_object().into_iter().flatten();
            let parts = parts.map(|(_, part)| part);
            let inner = [&schema["items"], &schema["additionalProperties"]];
            for part in parts.chain(inner) {
                if part.is_object() && !part["properties"].is_null()
                    || !part["items"].is_null()
                    || !part["additionalProperties"].is_null()
                {
                    todo.push(part.clone());
                }
            }
            if schema["properties"].is_object() && seen.insert(schema.to_string()) {
                own.types.push(schema);
            }
        }
        own
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        name.and_then(|name| self.builtin.get(name)).unwrap_or(schema)
    }

    /// How many of the fields are named one after the other, and where that ends.
    fn follow(&self, schema: &Value, fields: &[&str]) -> (usize, PathEnd) {
        let Some((field, rest)) = fields.split_first() else { return (0, PathEnd::Known) };
        let schema = self.resolved(schema);
        let free = &schema["additionalProperties"];
        let items = &schema["items"];
        let next = match schema["properties"].get(*field) {
            Some(part) => Some(part),
            None if free.is_object() => Some(free),
            None if items.is_object() && field.parse::<usize>().is_ok() => Some(items),
            None => None,
        };
        if let Some(next) = next {
            let (count, end) = self.follow(next, rest);
            return (count + 1, end);
        }
        let is_open = *free == true
            || schema["x-kubernetes-preserve-unknown-fields"] == true
            || (schema["type"] == "object" && schema["properties"].is_null());
        (0, if is_open { PathEnd::Open } else { PathEnd::Unknown })
    }

    /// Whether a type names all of the fields. Where none does, the types that name most of them
    /// decide, and at least two: below those, one may be open for any field.
    fn know(&self, fields: &[&str]) -> bool {
        let starts = if ROOTS.contains(&fields[0]) { &self.roots } else { &self.types };
        let starts = starts.iter().filter(|own| own["properties"].get(fields[0]).is_some());
        let (mut most, mut is_open) = (1, false);
        for start in starts {
            let (count, end) = self.follow(start, fields);
            if end == PathEnd::Known {
                return true;
            }
            if count > most {
                (most, is_open) = (count, false);
            }
            is_open |= count == most && most >= 2 && end == PathEnd::Open;
        }
        is_open
    }
}

/// Where a path ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEnd {
    Known,
    /// In an object that may have any field.
    Open,
    Unknown,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The fields of records that `fields!` declares.
fn record_fields(code: &str) -> Vec<String> {
    let field = Regex::new(r#"(?m)^        ([a-z_]+)(?: as "(\w+)")?: "#).unwrap();
    let camel_case = |field: &str| {
        let mut words = field.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
    };
    let blocks = code.split("\nfields! {").skip(1);
    let blocks = blocks.map(|block| block.split("\n}").next().unwrap_or_default());
    let found = blocks.flat_map(|block| field.captures_iter(block));
    found
        .map(|found| {
            let given = found.get(2).map(|given| given.as_str().to_owned());
            format!("/{}", given.unwrap_or_else(|| camel_case(&found[1])))
        })
        .collect()
}

#[test]
fn fields_of_records_are_found() {
    let code = "a: u8,\nfields! {\n    struct A {\n        node_id as \"nodeID\": u8,\n        \
                max_count: u8,\n    }\n}\nstruct B {\n        other: u8,\n}\n";
    assert_eq!(record_fields(code), ["/nodeID", "/maxCount"]);
}

#[test]
fn every_field_is_one_of_a_kind() {
    let schemas = Schemas::load();
    let mut files = Vec::new();
    source_files::collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let pointer = Regex::new(r#""((?:/[A-Za-z0-9]+)+)""#).unwrap();
    // A list of one text appears the same, but nothing is before it.
    let chain = Regex::new(r#"[\w)\]]((?:\["[A-Za-z0-9]+"\])+)"#).unwrap();
    let mut unknown = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut unused: BTreeSet<&str> = UNDESCRIBED.iter().map(|(path, _)| *path).collect();
    let mut count = 0;
    for (file, code) in &files {
        let pointers = pointer.captures_iter(code).map(|found| found[1].to_owned());
        let chains =
            chain.captures_iter(code).map(|found| found[1].replace("[\"", "/").replace("\"]", ""));
        for path in pointers.chain(chains).chain(record_fields(code)) {
            count += 1;
            unused.remove(path.as_str());
            let is_listed = UNDESCRIBED.iter().any(|(own, _)| *own == path);
            if is_listed || known.contains(&path) {
                continue;
            }
            if schemas.know(&path[1..].split('/').collect::<Vec<_>>()) {
                known.insert(path);
            } else {
                unknown.insert(format!("{}: {path}", file.rsplit("/src/").next().unwrap()));
            }
        }
    }
    assert!(count > 1000, "only {count} paths are found");
    assert_eq!(unused, BTreeSet::new(), "not needed any more");
    let unknown: Vec<String> = unknown.into_iter().collect();
    assert!(unknown.is_empty(), "no kind has these fields:\n{}", unknown.join("\n"));
}

#[test]
fn misspelt_fields_are_found() {
    let schemas = Schemas::load();
    let know = |path: &str| schemas.know(&path[1..].split('/').collect::<Vec<_>>());
    for right in [
        "/spec/running",
        "/spec/template/spec/domain/devices/interfaces",
        "/status/conditions/0/reason",
        "/metadata/ownerReferences",
        "/spec/nodeSelector/anything",
        "/persistentVolumeClaim/claimName",
    ] {
        assert!(know(right), "{right}");
    }
    for wrong in [
        "/spec/runing",
        "/spec/template/spec/domain/devices/interface",
        "/spec/updateStrategy/unmanagd",
        "/status/migrationStates",
        "/metadata/label",
        "/persistentVolumeClaim/claim",
    ] {
        assert!(!know(wrong), "{wrong}");
    }
}
