//! The small form in which the tables write schemas.

use std::sync::Arc;

use schema::{Additional, ListType, MapType, PatchStrategy, Schema, SchemaNode, Type};
use serde_json::Value;

/// `{"type":"object","properties":{…},"values":…,"atomic":true}`, `{"type":"array","items":…,
/// "set":true}` or `"keys":[…]`; `{}` is anything, `"scalar"` any scalar, `"atomic"` anything
/// but as a whole. `"merge":true` or `"merge":"key"`, `"replace":true`, `"retainKeys":true`
/// are strategies of patches.
pub(crate) fn schema(form: &Value) -> Schema {
    let ty = match form.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        Some("scalar") => Type::IntOrString,
        Some("atomic") | None => Type::Any,
        Some(other) => panic!("unknown type {other}"),
    };
    let atomic = form.get("type") == Some(&Value::from("atomic"));
    let properties = form.get("properties").and_then(Value::as_object);
    let known = form.as_object().is_some_and(|form| !form.is_empty());
    Arc::new(SchemaNode {
        ty,
        preserve_unknown: !known || atomic,
        properties: properties
            .into_iter()
            .flatten()
            .map(|(name, form)| (name.as_str().into(), schema(form)))
            .collect(),
        additional: match form.get("values") {
            Some(values) if values.as_object().is_some_and(|form| form.is_empty()) => {
                Additional::Anything
            }
            Some(values) => Additional::Of(schema(values)),
            None => Additional::Closed,
        },
        items: form.get("items").map(schema),
        list: match (form.get("keys").and_then(Value::as_array), form.get("set")) {
            (Some(keys), _) => {
                ListType::Map(keys.iter().map(|key| key.as_str().unwrap().into()).collect())
            }
            (None, Some(_)) => ListType::Set,
            (None, None) => ListType::Atomic,
        },
        map: if atomic || form.get("atomic").is_some() {
            MapType::Atomic
        } else {
            MapType::Granular
        },
        default: form.get("default").cloned().map(Box::new),
        patch: strategy(form),
        ..SchemaNode::default()
    })
}

fn strategy(form: &Value) -> Option<Box<PatchStrategy>> {
    let (merge, retain_keys) = (form.get("merge"), form.get("retainKeys").is_some());
    if merge.is_none() && !retain_keys && form.get("replace").is_none() {
        return None;
    }
    let key = merge.and_then(Value::as_str).map(Into::into);
    Some(Box::new(PatchStrategy { merge: merge.is_some(), retain_keys, key }))
}
