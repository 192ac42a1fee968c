//! Sharing equal subtrees while a schema is read.
//!
//! Children are shared before their parents, so that the fingerprint of a node needs
//! to read the addresses of its children only.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::node::{Additional, Schema, SchemaNode, Validation};

/// Every distinct node seen so far, by fingerprint.
#[derive(Debug, Default)]
pub(super) struct Interner {
    known: HashMap<u64, Vec<Schema>>,
}

impl Interner {
    /// The one allocation that represents all nodes equal to this one.
    pub(super) fn share(&mut self, node: SchemaNode) -> Schema {
        let candidates = self.known.entry(fingerprint(&node)).or_default();
        if let Some(known) = candidates.iter().find(|known| ***known == node) {
            return Arc::clone(known);
        }
        let schema = Arc::new(node);
        candidates.push(Arc::clone(&schema));
        schema
    }
}

/// Equal nodes have equal fingerprints; the converse is not needed.
fn fingerprint(node: &SchemaNode) -> u64 {
    let mut state = DefaultHasher::new();
    std::mem::discriminant(&node.ty).hash(&mut state);
    [node.nullable, node.preserve_unknown, node.embedded].hash(&mut state);
    for (name, schema) in &node.properties {
        name.hash(&mut state);
        Arc::as_ptr(schema).hash(&mut state);
    }
    match &node.additional {
        Additional::Closed => 0.hash(&mut state),
        Additional::Anything => 1.hash(&mut state),
        Additional::Of(schema) => Arc::as_ptr(schema).hash(&mut state),
    }
    node.items.as_ref().map(Arc::as_ptr).hash(&mut state);
    if let Some(default) = &node.default {
        default.to_string().hash(&mut state);
    }
    if let Some(validation) = &node.validation {
        hash_validation(validation, &mut state);
    }
    state.finish()
}

fn hash_validation(validation: &Validation, state: &mut DefaultHasher) {
    validation.format.hash(state);
    validation.pattern.hash(state);
    validation.required.hash(state);
    validation.minimum.map(f64::to_bits).hash(state);
    validation.maximum.map(f64::to_bits).hash(state);
    [validation.max_length, validation.max_items, validation.min_length].hash(state);
    for value in &validation.enumeration {
        value.to_string().hash(state);
    }
    for rule in &validation.rules {
        rule.rule.hash(state);
    }
    let alternatives = [&validation.all_of, &validation.any_of, &validation.one_of];
    for schema in alternatives.into_iter().flatten() {
        Arc::as_ptr(schema).hash(state);
    }
}
