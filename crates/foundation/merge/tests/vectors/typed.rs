//! `typed.txt`: values seen through their schema.

use std::collections::BTreeMap;

use merge::{
    Duplicates, Set, compare, extract_items, merge, reconcile_field_set_with_schema, remove_items,
    to_field_set, validate,
};
use schema::Schema;
use serde_json::Value;

use super::form::schema;
use super::json;

fn set(text: &str) -> Set {
    Set::from_json(text).unwrap()
}

/// Checks one line; returns the result and the expected one.
fn check(fact: &str, schema: &Schema, columns: &[&str]) -> (String, String) {
    let text = |value: &Value| value.to_string();
    match (fact, columns) {
        ("fields", [value, expected]) => {
            (to_field_set(&json(value), schema).to_json(), set(expected).to_json())
        }
        ("merge", [live, config, expected]) => {
            let merged = merge(&json(live), &json(config), schema).unwrap();
            (text(&merged.unwrap_or(Value::Null)), text(&json(expected)))
        }
        ("compare", [old, new, added, modified, removed]) => {
            let found = compare(&json(old), &json(new), schema).unwrap();
            let shown = |sets: [&Set; 3]| sets.map(Set::to_json).join(" | ");
            (
                shown([&found.added, &found.modified, &found.removed]),
                shown([&set(added), &set(modified), &set(removed)]),
            )
        }
        ("remove", [value, items, expected]) => {
            (text(&remove_items(&json(value), &set(items), schema)), text(&json(expected)))
        }
        ("extract", [value, items, expected]) => {
            (text(&extract_items(&json(value), &set(items), schema)), text(&json(expected)))
        }
        ("reconcile", [items, expected]) => {
            let found = reconcile_field_set_with_schema(&set(items), schema);
            (found.map_or_else(|| "null".to_owned(), |set| set.to_json()), (*expected).to_owned())
        }
        ("validate", [duplicates, value, expected]) => {
            let duplicates = match *duplicates {
                "allowed" => Duplicates::Allowed,
                _ => Duplicates::Refused,
            };
            let found = match validate(&json(value), schema, duplicates) {
                Ok(()) => "ok",
                Err(_) => "error",
            };
            (found.to_owned(), (*expected).to_owned())
        }
        _ => panic!("unknown fact {fact} {columns:?}"),
    }
}

#[test]
fn values_read_through_their_schema_as_upstream_does() {
    let mut schemas: BTreeMap<&str, Schema> = BTreeMap::new();
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in include_str!("typed.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<&str> = line.split(" | ").collect();
        let [fact, name, rest @ ..] = columns.as_slice() else { panic!("{line}") };
        if *fact == "schema" {
            schemas.insert(name, schema(&json(rest[0])));
            continue;
        }
        let (found, expected) = check(fact, &schemas[name], rest);
        checked += 1;
        if found != expected {
            wrong.push(format!("{line}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(checked > 800, "only {checked} facts");
    assert!(wrong.is_empty(), "{} of {checked} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
