//! Dropping what a schema does not specify.
//!
//! `apiVersion`, `kind` and `metadata` are never checked here, neither at the root
//! nor in embedded resources: [`coerce_metadata`](crate::coerce_metadata) owns them.

use serde_json::Value;

use crate::node::{Additional, SchemaNode};
use crate::trail::Trail;

/// Whether a value is a whole API object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectLevel {
    /// The value has `apiVersion`, `kind` and `metadata`, which are always kept.
    Root,
    /// The value is some part of an object.
    Field,
}

/// Drops unspecified fields and returns their paths (`spec.foo`, `spec.list[0].bar`), sorted.
pub fn prune(value: &mut Value, schema: &SchemaNode, level: ObjectLevel) -> Vec<String> {
    let mut pruner = Pruner { trail: Trail::default(), dropped: Vec::new() };
    let resource = schema.embedded || level == ObjectLevel::Root;
    if schema.preserve_unknown {
        pruner.keep(value, schema, resource);
    } else {
        pruner.prune(value, Some(schema), resource);
    }
    pruner.dropped.sort();
    pruner.dropped
}

pub(crate) fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner {
    trail: Trail,
    dropped: Vec<String>,
}

impl Pruner {
    fn child(&mut self, value: &mut Value, schema: Option<&SchemaNode>) {
        match schema {
            Some(node) if node.preserve_unknown => self.keep(value, node, node.embedded),
            Some(node) => self.prune(value, schema, node.embedded),
            None => self.prune(value, None, false),
        }
    }

    /// Without a schema only scalars survive.
    fn prune(&mut self, value: &mut Value, schema: Option<&SchemaNode>, resource: bool) {
        match value {
            Value::Object(map) => map.retain(|name, value| {
                let schema = match known(schema, name, resource) {
                    KnownFields::Meta => return true,
                    KnownFields::Field(schema) => schema,
                    KnownFields::No => {
                        // Metadata without a schema is a root that was not marked as one.
                        if !is_meta(name) || !self.trail.is_empty() {
                            self.dropped.push(self.trail.with_field(name));
                        }
                        return false;
                    }
                };
                let mark = self.trail.push_field(name);
                self.child(value, schema);
                self.trail.pop(mark);
                true
            }),
            Value::Array(list) => {
                let items = schema.and_then(|node| node.items.as_deref());
                for (index, item) in list.iter_mut().enumerate() {
                    let mark = self.trail.push_index(index);
                    self.child(item, items);
                    self.trail.pop(mark);
                }
            }
            _ => {}
        }
    }

    /// Keeps what is unspecified, but pruning starts again below specified fields.
    fn keep(&mut self, value: &mut Value, node: &SchemaNode, resource: bool) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let KnownFields::Field(schema) = known(Some(node), name, resource) {
                        let mark = self.trail.push_field(name);
                        self.child(value, schema);
                        self.trail.pop(mark);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items.as_deref() else { return };
                for (index, item) in list.iter_mut().enumerate() {
                    let mark = self.trail.push_index(index);
                    self.keep(item, items, items.embedded);
                    self.trail.pop(mark);
                }
            }
            _ => {}
        }
    }
}

enum KnownFields<'a> {
    Meta,
    /// A specified field; `additionalProperties: true` specifies it without a schema.
    Field(Option<&'a SchemaNode>),
    No,
}

fn known<'a>(schema: Option<&'a SchemaNode>, name: &str, resource: bool) -> KnownFields<'a> {
    let Some(node) = schema else { return KnownFields::No };
    if resource && is_meta(name) {
        return KnownFields::Meta;
    }
    match (node.property(name), &node.additional) {
        (Some(property), _) => KnownFields::Field(Some(property)),
        (None, Additional::Of(schema)) => KnownFields::Field(Some(schema)),
        (None, Additional::Anything) => KnownFields::Field(None),
        (None, Additional::Closed) => KnownFields::No,
    }
}

#[cfg(test)]
mod tests;
