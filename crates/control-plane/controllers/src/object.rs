//! Reading objects that are kept as JSON.
//!
//! Machines are handled as JSON so that fields this version does not know survive being
//! copied. A field that is absent or of another type reads as empty.

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

pub(crate) fn is_true(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool) == Some(true)
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

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
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

/// What a patch must carry so that it is refused when somebody else was faster.
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
    fn what_is_absent_reads_as_empty() {
        let object = json!({"spec": {"a": 1}});
        assert_eq!((text(&object, "/spec/a"), list(&object, "/x").len()), ("", 0));
        assert!(controller(&object).is_none() && !is_deleting(&object));
    }
}
