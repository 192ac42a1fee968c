//! Uniqueness in lists of type `set` and `map`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::MAX_ERRORS;
use crate::field::{FieldError, Path};
use crate::node::{ListType, SchemaNode};

/// Every first repetition in a list that must not have any.
pub(crate) fn validate(value: &Value, node: &SchemaNode, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(value, node, at, &mut errors);
    errors
}

fn visit(value: &Value, node: &SchemaNode, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(schema) = node.property(name) {
                    visit(value, schema, &at.field(name), errors);
                } else if let Some(schema) = node.field(name) {
                    visit(value, schema, &at.key(name), errors);
                }
            }
        }
        Value::Array(list) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => errors.extend(
                    repetitions(list.iter())
                        .into_iter()
                        .map(|index| FieldError::duplicate(at.index(index), list[index].clone())),
                ),
                ListType::Map(keys) => check_map(list, keys, at, errors),
            }
            if let Some(items) = &node.items {
                for (index, item) in list.iter().enumerate() {
                    visit(item, items, &at.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(list: &[Value], keys: &[Box<str>], at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let other = list.iter().position(|item| !item.is_null() && !item.is_object());
    if let Some(index) = other {
        let text = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(at.index(index), list[index].clone(), text));
        return;
    }
    let identities: Vec<Value> = list.iter().map(|item| identity(item, keys)).collect();
    errors.extend(
        repetitions(identities.iter())
            .into_iter()
            .map(|index| FieldError::duplicate(at.index(index), identities[index].clone())),
    );
}

/// The keys of an item, without those that it lacks.
fn identity(item: &Value, keys: &[Box<str>]) -> Value {
    let keys = keys.iter().filter_map(|key| {
        let value = item.get(&**key)?;
        Some(((**key).to_owned(), value.clone()))
    });
    Value::Object(keys.collect::<Map<_, _>>())
}

/// Indexes at which a value occurs for the second time.
fn repetitions<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut repeated = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 && repeated.len() < MAX_ERRORS {
            repeated.push(index);
        }
    }
    repeated
}

pub(super) fn has_duplicates(list: &[Value]) -> bool {
    !repetitions(list.iter()).is_empty()
}
