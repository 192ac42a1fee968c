//! Reading objects that are kept as JSON.
//!
//! Machines are handled as JSON so that fields this version does not know survive being
//! copied. A field that is absent or of another type reads as empty, and does not keep the other
//! fields of its object from being read. Parts with several fields are read as records ([`read`]).

use serde::Deserialize;
use serde_json::{Map, Value, json};
use types::Quantity;

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn strings<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    list(object, pointer).iter().filter_map(Value::as_str)
}

pub(crate) fn int(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

pub(crate) fn flag(object: &Value, pointer: &str) -> Option<bool> {
    object.pointer(pointer).and_then(Value::as_bool)
}

pub(crate) fn is_true(object: &Value, pointer: &str) -> bool {
    flag(object, pointer) == Some(true)
}

pub(crate) fn quantity(object: &Value, pointer: &str) -> Option<Quantity> {
    let value = object.pointer(pointer).filter(|value| !value.is_null())?;
    Quantity::from_json(value).ok()
}

/// The entries of a map.
pub(crate) fn entries<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// A part of an object as a record, which may name few of its fields and borrow their texts. A
/// part that is absent or of another shape reads as the empty record.
pub(crate) fn read<'a, T: Deserialize<'a> + Default>(part: &'a Value) -> T {
    T::deserialize(part).unwrap_or_default()
}

/// A copy of a map, such as labels; empty if there is none.
pub(crate) fn copied_map(map: &Value) -> Map<String, Value> {
    map.as_object().cloned().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn generation(object: &Value) -> i64 {
    int(object, "/metadata/generation").unwrap_or_default()
}

/// Where the next page of a list begins; nothing on the last page.
pub(crate) fn continue_token(page: &Value) -> Option<&str> {
    Some(text(page, "/metadata/continue")).filter(|token| !token.is_empty())
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The labels of an object; null if it has none.
pub(crate) fn labels(object: &Value) -> &Value {
    &object["metadata"]["labels"]
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    labels(object).get(key)?.as_str()
}

/// The annotations of an object; null if it has none.
pub(crate) fn annotations(object: &Value) -> &Value {
    &object["metadata"]["annotations"]
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    annotations(object).get(key)?.as_str()
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    list(object, "/metadata/finalizers").iter().any(|own| own == finalizer)
}

/// The owner that controls the object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = list(object, "/metadata/ownerReferences");
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Whether `owner` controls the object.
pub(crate) fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    controller(object).is_some_and(|own| text(own, "/uid") == uid(owner))
}

/// A reference that makes `owner` the controller of what carries it.
pub(crate) fn controlled_by(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true})
}

/// The metadata with which a patch is refused if another writer was faster.
pub(crate) fn version(object: &Value) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert("uid".into(), json!(uid(object)));
    meta.insert("resourceVersion".into(), json!(text(object, "/metadata/resourceVersion")));
    meta
}

/// The finalizers without some.
pub(crate) fn finalizers_without(object: &Value, unwanted: &[&str]) -> Vec<Value> {
    let own = list(object, "/metadata/finalizers").iter();
    own.filter(|own| !unwanted.iter().any(|unwanted| *own == unwanted)).cloned().collect()
}

/// Whether a merge patch would leave the object as it is.
pub(crate) fn is_merged(object: &Value, patch: &Value) -> bool {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => patch.iter().all(|(key, value)| {
            object.get(key).map_or(value.is_null(), |own| is_merged(own, value))
        }),
        _ => object == patch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_changes_nothing_is_recognised() {
        let object = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        let check = |patch: Value| is_merged(&object, &patch);
        assert!(check(json!({})) && check(json!({"a": {"c": [1, 2]}, "z": null})));
        assert!(!check(json!({"a": {"c": [1]}})) && !check(json!({"d": null})));
        assert!(!check(json!({"e": {}})));
    }

    #[test]
    fn absent_fields_read_as_empty() {
        let object = json!({"spec": {"a": 1}});
        assert_eq!((text(&object, "/spec/a"), list(&object, "/x").len()), ("", 0));
        assert!(controller(&object).is_none() && !is_deleting(&object));
        assert!(labels(&object).is_null() && label(&object, "a").is_none());
        assert!(annotation(&object, "a").is_none() && copied_map(labels(&object)).is_empty());
    }

    #[test]
    fn a_record_names_the_fields_that_matter_and_borrows() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Part<'a> {
            node_name: &'a str,
            count: Option<i64>,
        }
        let object = json!({"spec": {"nodeName": "one", "unknown": [1]}, "status": "x"});
        assert_eq!(read::<Part<'_>>(&object["spec"]), Part { node_name: "one", count: None });
        for other in [&object["status"], &object["absent"]] {
            assert_eq!(read::<Part<'_>>(other), Part::default());
        }
    }
}
