//! Objects as JSON trees: reading and writing the metadata that the server owns.

use serde_json::{Map, Value};

/// The elements of a list that need not be there. To index for it would put a null in its place.
pub(crate) fn list_mut<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// `metadata`, created if it is absent.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("it was just made an object")
}

/// A string of the metadata; empty if absent.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Sets or, with `None`, removes a metadata field.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => {
            metadata.insert(field.to_owned(), value);
        }
        None => {
            metadata.remove(field);
        }
    }
}

/// Makes `field` of the metadata equal to that of `from`.
pub(crate) fn copy_meta(object: &mut Value, from: &Value, field: &str) {
    set_meta(object, field, from["metadata"].get(field).cloned());
}

/// Makes a top-level field equal to that of `from`.
pub(crate) fn copy_top(object: &mut Value, from: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// The key below a table: `namespace/name`, or `name` for cluster scope.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Whether anything but metadata (and, if asked, status) differs.
pub(crate) fn content_differs(new: &Value, old: &Value, ignore_status: bool) -> bool {
    let ignored = |field: &str| {
        matches!(field, "metadata" | "apiVersion" | "kind") || (ignore_status && field == "status")
    };
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
    let fields = |map: &Map<String, Value>| map.keys().filter(|field| !ignored(field)).count();
    fields(new) != fields(old)
        || new.iter().any(|(field, value)| !ignored(field) && old.get(field) != Some(value))
}
