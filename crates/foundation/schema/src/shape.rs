//! Whether objects and lists are where a schema has them. Pure.
//!
//! It is less than validation and cheap: enough for code that sets fields of an object before the
//! object is validated.

use serde_json::Value;

use crate::node::{SchemaNode, Type};

/// Whether every object and every list that the schema declares is one, or absent, or null.
pub fn has_shape(value: &Value, schema: &SchemaNode) -> bool {
    match (schema.ty, value) {
        (_, Value::Null) => true,
        (Type::Object, Value::Object(fields)) => fields
            .iter()
            .all(|(name, value)| schema.field(name).is_none_or(|schema| has_shape(value, schema))),
        (Type::Array, Value::Array(items)) => {
            schema.items.as_deref().is_none_or(|node| items.iter().all(|own| has_shape(own, node)))
        }
        (Type::Object | Type::Array, _) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_and_lists_are_in_their_places() {
        let schema = crate::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "text": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object"}},
                "map": {"type": "object", "additionalProperties": {"type": "object"}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
            }},
        }}))
        .unwrap();
        for (spec, expected) in [
            (json!({}), true),
            (json!(null), true),
            (json!({"text": 7, "list": null, "other": []}), true),
            (json!({"list": [{}], "map": {"a": {}}, "any": 1}), true),
            (json!([]), false),
            (json!("text"), false),
            (json!({"list": {}}), false),
            (json!({"list": [{}, "x"]}), false),
            (json!({"map": {"a": 1}}), false),
        ] {
            assert_eq!(has_shape(&json!({"spec": spec}), &schema), expected, "{spec}");
        }
    }
}
