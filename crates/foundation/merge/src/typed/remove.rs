//! Taking fields and items out of a value, or keeping only some.

use serde_json::{Map, Value};

use super::field_element;
use super::walk::{Ty, ValueKind};
use crate::set::Set;

/// The value without `items`. A value that loses all its content becomes null: a caller that wants
/// it removed as well names it in the set.
pub(super) fn remove(ty: Ty<'_>, value: &Value, items: &Set) -> Value {
    let kind = ty.kind(Some(value));
    if kind == ValueKind::Scalar {
        return value.clone();
    }
    if ty.is_atomic(kind) {
        return Value::Null;
    }
    match (kind, value) {
        (ValueKind::Map, Value::Object(fields)) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                match items.node(&field_element(name)) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        let value = remove(ty.field(name), value, &node.below);
                        kept.insert(name.clone(), value);
                    }
                    None => {
                        kept.insert(name.clone(), value.clone());
                    }
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (ValueKind::List, Value::Array(list)) => {
            let kept: Vec<Value> = list
                .iter()
                .filter_map(|item| {
                    let node = ty.item_element(item).ok().and_then(|it| items.node(&it));
                    match node {
                        Some(node) if node.member => None,
                        Some(node) => Some(remove(ty.item(), item, &node.below)),
                        None => Some(item.clone()),
                    }
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}

/// Only `items` of the value; an atomic or empty value comes whole.
pub(super) fn extract(ty: Ty<'_>, value: &Value, items: &Set) -> Value {
    let kind = ty.kind(Some(value));
    if ty.is_atomic(kind) {
        return value.clone();
    }
    match (kind, value) {
        (ValueKind::Map, Value::Object(fields)) if !fields.is_empty() => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let Some(node) = items.node(&field_element(name)) else { continue };
                // A member that is not a leaf is extracted by the names of its own level,
                // as upstream does; sets of leaves never get here.
                let deeper = if node.member { items } else { &node.below };
                kept.insert(name.clone(), extract(ty.field(name), value, deeper));
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (ValueKind::List, Value::Array(list)) if !list.is_empty() => {
            let kept: Vec<Value> = list
                .iter()
                .filter_map(|item| {
                    let element = ty.item_element(item).ok()?;
                    let node = items.node(&element)?;
                    if node.below.is_empty() {
                        return Some(item.clone());
                    }
                    Some(extract(ty.item(), item, &node.below))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (ValueKind::Map, Value::Object(_)) | (ValueKind::List, Value::Array(_)) => value.clone(),
        _ => Value::Null,
    }
}
