//! Ratcheting: the values before an update, found while walking down.
//!
//! A stored object that a newer schema would refuse must stay editable elsewhere, so
//! failures are forgiven where the value did not change. Old and new correlate through
//! field names and the keys of list maps; items of other lists do not correlate.

use std::collections::HashMap;

use serde_json::Value;

use crate::node::{ListType, SchemaNode};

/// The old value beside some new one, and the schema of both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Old<'a> {
    pub(crate) value: &'a Value,
    node: &'a SchemaNode,
}

impl<'a> Old<'a> {
    pub(crate) fn new(value: &'a Value, node: &'a SchemaNode) -> Self {
        Self { value, node }
    }

    /// The old value of the field `name`; only for fields of the schema.
    pub(crate) fn field(&self, name: &str) -> Option<Old<'a>> {
        let value = self.value.as_object()?.get(name)?;
        Some(Old { value, node: self.node.field(name)? })
    }

    /// The items of a list map by their keys; other lists do not correlate.
    pub(crate) fn items(&self) -> Option<Items<'a>> {
        let ListType::Map(keys) = &self.node.list else { return None };
        let node = self.node.items.as_deref()?;
        let mut known = HashMap::new();
        for item in self.value.as_array()? {
            if let Some(key) = key(item, keys) {
                known.entry(key).or_insert(item);
            }
        }
        Some(Items { keys, node, known })
    }

    /// Equality through correlation: the order of a list map does not count, and parts
    /// that the schema does not describe never compare equal.
    pub(crate) fn equals(&self, new: &Value) -> bool {
        match (self.value, new) {
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                match self.items() {
                    Some(items) => {
                        new.iter().all(|item| items.find(item).is_some_and(|old| old.equals(item)))
                    }
                    None => old == new,
                }
            }
            (Value::Object(old), Value::Object(new)) if old.len() == new.len() => {
                new.iter().all(|(name, new)| self.field(name).is_some_and(|old| old.equals(new)))
            }
            (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => {
                false
            }
            (old, new) => old == new,
        }
    }
}

/// The old items of a list map. Built once per list: searching for each item in turn would
/// make long lists quadratic.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    keys: &'a [Box<str>],
    node: &'a SchemaNode,
    known: HashMap<String, &'a Value>,
}

impl<'a> Items<'a> {
    /// The old value of the item with the same keys.
    pub(crate) fn find(&self, item: &Value) -> Option<Old<'a>> {
        let value = self.known.get(&key(item, self.keys)?)?;
        Some(Old { value, node: self.node })
    }
}

/// An item that lacks a key, or has one that is no scalar, correlates with nothing.
fn key(item: &Value, keys: &[Box<str>]) -> Option<String> {
    let item = item.as_object()?;
    let mut text = String::new();
    for key in keys {
        match item.get(&**key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            scalar => {
                text.push_str(&scalar.to_string());
                text.push('\0');
            }
        }
    }
    Some(text)
}
