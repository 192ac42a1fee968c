//! Tables for `kubectl get`, computed on the server.

use base::clock;
use serde_json::{Value, json};

use crate::http::options::Query;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};

/// The part of its object that each row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// The value of `includeObject` in the query.
pub(crate) fn include(query: &Query) -> Include {
    match query.get("includeObject") {
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        _ => Include::Metadata,
    }
}

/// Refuses a wish for rows that cannot be fulfilled.
pub(crate) fn check(query: &Query) -> ApiResult<()> {
    match query.get("includeObject") {
        None | Some("" | "None" | "Metadata" | "Object") => Ok(()),
        Some(other) => Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

/// A table of one object, as JSON.
pub(crate) fn of_one(
    served: &ServedKind,
    include: Include,
    object: &Value,
    version: &str,
) -> Vec<u8> {
    let mut meta = json!({});
    if let Some(revision) = object["metadata"].get("resourceVersion") {
        meta["resourceVersion"] = revision.clone();
    }
    encode(served, include, std::iter::once(object.clone()), meta, version)
}

/// A table of a list page, as JSON.
pub(crate) fn of_list(
    served: &ServedKind,
    include: Include,
    objects: impl Iterator<Item = Value>,
    meta: Value,
    version: &str,
) -> Vec<u8> {
    encode(served, include, objects, meta, version)
}

/// The table inside a watch event; only the first needs the columns.
pub(crate) fn of_event(
    served: &ServedKind,
    include: Include,
    object: &Value,
    version: &str,
    first: bool,
) -> Value {
    let mut meta = json!({});
    if let Some(revision) = object["metadata"].get("resourceVersion") {
        meta["resourceVersion"] = revision.clone();
    }
    build(served, include, std::iter::once(object.clone()), meta, version, first)
}

fn encode(
    served: &ServedKind,
    include: Include,
    objects: impl Iterator<Item = Value>,
    meta: Value,
    version: &str,
) -> Vec<u8> {
    serde_json::to_vec(&build(served, include, objects, meta, version, true))
        .expect("a tree always encodes")
}

fn build(
    served: &ServedKind,
    include: Include,
    objects: impl Iterator<Item = Value>,
    meta: Value,
    version: &str,
    columns: bool,
) -> Value {
    let now = clock::now();
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = json!({"cells": served.cells(&object, now)});
            match include {
                Include::None => row["object"] = Value::Null,
                Include::Metadata => {
                    row["object"] = json!({
                        "kind": "PartialObjectMetadata",
                        "apiVersion": format!("meta.k8s.io/{version}"),
                        "metadata": object["metadata"],
                    });
                }
                Include::Object => row["object"] = object,
            }
            row
        })
        .collect();
    // Null, not empty, means that they are the same as before.
    let definitions = columns.then(|| served.columns());
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": meta,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_event_of_a_watch_has_columns() {
        let row = kinds::builtin().iter().find(|row| row.kind == "ConfigMap").unwrap();
        let served = ServedKind::built_in(row);
        let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
        let [first, next] =
            [true, false].map(|first| of_event(&served, Include::Metadata, &object, "v1", first));
        assert_eq!(first["columnDefinitions"][0]["name"], "Name");
        assert_eq!(next["columnDefinitions"], Value::Null);
        assert_eq!(next["rows"], first["rows"]);
    }
}
