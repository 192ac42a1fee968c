//! The schema of a custom kind as field managers read it: with the fields that every
//! object has and no definition declares.

use std::sync::{Arc, LazyLock};

use schema::{Additional, Schema, SchemaNode, Type};

/// `apiVersion`, `kind` and `metadata`, sorted as [`Node::properties`] must be.
static ENVELOPE: LazyLock<[(Box<str>, Schema); 3]> = LazyLock::new(|| {
    let text = Arc::new(SchemaNode { ty: Type::String, ..SchemaNode::default() });
    let metadata = types::schema("", "v1", "ConfigMap")
        .and_then(|kind| kind.property("metadata").cloned())
        .unwrap_or_else(SchemaNode::anything);
    [("apiVersion".into(), text.clone()), ("kind".into(), text), ("metadata".into(), metadata)]
});

/// Declares the envelope at the root and in every embedded resource. A schema that a definition
/// has for these fields restricts their values, not their ownership.
pub(super) fn declare(root: &Schema) -> Schema {
    let inner = inside(root);
    Arc::new(enclosed(inner.as_ref().unwrap_or(root)))
}

/// The schema with embedded resources completed; `None` if it holds none, so that
/// subtrees stay shared.
fn completed(node: &Schema) -> Option<Schema> {
    let inner = inside(node);
    if node.embedded {
        return Some(Arc::new(enclosed(inner.as_ref().unwrap_or(node))));
    }
    inner
}

fn inside(node: &Schema) -> Option<Schema> {
    let properties: Vec<Option<Schema>> =
        node.properties.iter().map(|(_, schema)| completed(schema)).collect();
    let items = node.items.as_ref().and_then(completed);
    let additional = match &node.additional {
        Additional::Of(schema) => completed(schema),
        Additional::Closed | Additional::Anything => None,
    };
    if items.is_none() && additional.is_none() && properties.iter().all(Option::is_none) {
        return None;
    }
    let mut changed = SchemaNode::clone(node);
    for ((_, old), new) in changed.properties.iter_mut().zip(properties) {
        if let Some(new) = new {
            *old = new;
        }
    }
    changed.items = items.or(changed.items);
    if let Some(additional) = additional {
        changed.additional = Additional::Of(additional);
    }
    Some(Arc::new(changed))
}

fn enclosed(node: &SchemaNode) -> SchemaNode {
    let mut properties: Vec<_> = node
        .properties
        .iter()
        .filter(|(name, _)| ENVELOPE.iter().all(|(known, _)| known != name))
        .chain(ENVELOPE.iter())
        .cloned()
        .collect();
    properties.sort_by(|(one, _), (other, _)| one.cmp(other));
    SchemaNode { properties: properties.into(), ..node.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        schema::parse(&json!({
            "type": "object",
            "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
                "spec": {"type": "object", "properties": {
                    "plain": {"type": "object", "properties": {"kindred": {"type": "string"}}},
                    "templates": {"type": "array", "items": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": true,
                        "properties": {"spec": {"type": "object"}},
                    }},
                }},
            },
        }))
        .expect("a valid schema")
    }

    #[test]
    fn root_and_embedded_resources_declare_their_envelope() {
        let declared = declare(&schema());
        let spec = declared.property("spec").expect("still declared");
        let template = spec.property("templates").and_then(|list| list.items.clone());
        for node in [declared.clone(), template.expect("items are declared")] {
            assert!(node.property("apiVersion").is_some() && node.property("kind").is_some());
            let metadata = node.property("metadata").expect("metadata is declared");
            assert!(metadata.property("labels").is_some());
            assert!(node.property("spec").is_some());
        }
    }

    #[test]
    fn subtrees_without_embedded_resources_stay_shared() {
        let before = schema();
        let after = declare(&before);
        let plain = |root: &Schema| root.property("spec")?.property("plain").cloned();
        let (before, after) = (plain(&before).expect("there"), plain(&after).expect("there"));
        assert!(Arc::ptr_eq(&before, &after));
    }
}
