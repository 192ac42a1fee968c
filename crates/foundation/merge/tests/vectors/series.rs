//! `series.txt`: single writes to whole objects, each with the stored object before it and
//! the object that upstream stores after it, one JSON object per line.
//!
//! `MERGE_SERIES` may name a file with more of them.

use merge::{ApplyError, MergeRequest, Set, apply, equal_ignoring_timestamps, track_update};
use schema::Schema;
use serde_json::{Value, json};

use super::form::schema;
use super::json as parse;

/// A kind with lists, sets and maps of all sorts.
pub(crate) fn thing() -> Schema {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let texts = json!({"type": "object", "values": text});
    let set = json!({"type": "array", "set": true, "items": text});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let keyed = |keys: &[&str], properties: Value| json!({"type": "array", "keys": keys, "items": object(properties)});
    let mut owners = keyed(&["uid"], json!({"uid": text, "name": text}));
    owners["items"]["atomic"] = true.into();
    let metadata = object(json!({
        "name": text, "namespace": text, "uid": text, "resourceVersion": text,
        "generation": number, "labels": texts, "annotations": texts, "finalizers": set,
        "ownerReferences": owners, "managedFields": {"type": "array", "items": {}},
    }));
    let mut selector = texts;
    selector["atomic"] = true.into();
    let protocol = json!({"type": "string", "default": "TCP"});
    let pool = object(json!({"size": number, "kind": text}));
    let spec = object(json!({
        "replicas": number, "name": text, "paused": {"type": "boolean"},
        "ports": keyed(
            &["port", "protocol"],
            json!({"port": number, "protocol": protocol, "name": text}),
        ),
        "disks": keyed(&["name"], json!({"name": text, "size": number, "tags": set})),
        "args": {"type": "array", "items": text},
        "zones": set,
        "selector": selector,
        "pools": {"type": "object", "values": pool},
        "free": {"type": "object", "values": {}},
        "nested": object(json!({"a": text, "deep": object(json!({"b": text, "c": number}))})),
    }));
    let conditions = keyed(&["type"], json!({"type": text, "status": text}));
    let status = object(json!({"phase": text, "conditions": conditions}));
    schema(&object(json!({
        "apiVersion": text, "kind": text, "metadata": metadata, "spec": spec, "status": status,
    })))
}

/// The error of one row, if any.
fn check(row: &Value, schema: &Schema) -> Option<String> {
    let text = |name: &str| row[name].as_str().unwrap_or("");
    let (status, rest) =
        (Set::of_fields(&[&["status"]]), Set::of_fields(&[&["spec"], &["metadata"]]));
    let request = MergeRequest {
        manager: text("manager"),
        subresource: text("sub"),
        api_version: text("version"),
        kind: "Thing",
        now: text("now"),
        schema,
        reset: if text("sub").is_empty() { &status } else { &rest },
        versions: &["g/v1", "g/v1beta1"],
        blank: None,
    };
    let live = row.get("live");
    let config = &row["config"];
    if text("op") == "update" {
        let mut new = config.clone();
        track_update(live, &mut new, &request);
        return (new != row["out"]).then(|| format!("found {new}"));
    }
    let force = row["force"] == json!(true);
    match (apply(live, config, &request, force), row.get("out")) {
        (Ok(Some(found)), Some(out)) => (found != *out).then(|| format!("found {found}")),
        (Ok(None), Some(out)) => {
            let same = live.is_some_and(|live| equal_ignoring_timestamps(live, out));
            (!same).then(|| "found no change".to_owned())
        }
        (Ok(_), None) => Some("did not fail".to_owned()),
        (Err(error), None) => check_error(&error, row),
        (Err(error), Some(_)) => Some(format!("failed: {error}")),
    }
}

fn check_error(error: &ApplyError, row: &Value) -> Option<String> {
    if error.to_string() != row["err"].as_str().unwrap() {
        return Some(format!("failed with {error}"));
    }
    let ApplyError::Conflict(conflicts) = error else { return None };
    let mut causes: Vec<String> = conflicts
        .0
        .iter()
        .map(|conflict| format!("FieldManagerConflict|{}|{}", conflict.message(), conflict.field()))
        .collect();
    causes.sort();
    (json!(causes) != row["causes"]).then(|| format!("causes {causes:?}"))
}

#[test]
fn whole_objects_are_stored_as_upstream_stores_them() {
    let schema = thing();
    let more = std::env::var("MERGE_SERIES").ok();
    let more = more.map(|path| std::fs::read_to_string(path).unwrap());
    let rows = more.as_deref().unwrap_or(include_str!("series.txt"));
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in rows.lines().filter(|line| line.starts_with('{')) {
        let row = parse(line);
        checked += 1;
        if let Some(why) = check(&row, &schema) {
            wrong.push(format!("{line}\n  {why}"));
        }
    }
    assert!(checked > 100, "only {checked} rows");
    let first: Vec<&String> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} of {checked} wrong:\n{first:#?}", wrong.len());
}
