//! Equality and order of CEL values.

use std::cmp::Ordering;

use super::library;
use super::lookup;
use super::value::{MapKey, ResourceValue, Val};
use crate::node::ListType;

/// `==`. Numbers compare across types; lists that a schema calls sets or maps compare
/// without order.
pub(super) fn equals(left: &Val<'_>, right: &Val<'_>) -> bool {
    match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (Val::Text(left), Val::Text(right)) => **left == **right,
        (Val::Bytes(left), Val::Bytes(right)) => left == right,
        (Val::Type(left), Val::Type(right)) => left == right,
        (Val::Optional(left), Val::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equals(left, right),
            (None, None) => true,
            _ => false,
        },
        (Val::Foreign(left), Val::Foreign(right)) => library::equals(left, right),
        (Val::List(_) | Val::Array(..), Val::List(_) | Val::Array(..))
            if is_unordered(left) || is_unordered(right) =>
        {
            left.size() == right.size() && sorted(left) == sorted(right)
        }
        (Val::List(_) | Val::Array(..), Val::List(_) | Val::Array(..)) => {
            let (left, right) = (items(left), items(right));
            left.len() == right.len()
                && left.iter().zip(&right).all(|(left, right)| equals(left, right))
        }
        (
            Val::Map(_) | Val::Object(..) | Val::Entries(..),
            Val::Map(_) | Val::Object(..) | Val::Entries(..),
        ) => {
            let (left, right) = (entries(left), entries(right));
            left.len() == right.len()
                && left
                    .iter()
                    .zip(&right)
                    .all(|((key, left), (other, right))| key == other && equals(left, right))
        }
        _ => compare_numbers(left, right) == Some(Ordering::Equal),
    }
}

/// `<` and its relatives; `None` for what has no order.
pub(super) fn order(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    match (left, right) {
        (Val::Bool(left), Val::Bool(right)) => Some(left.cmp(right)),
        (Val::Text(left), Val::Text(right)) => Some((**left).cmp(&**right)),
        (Val::Bytes(left), Val::Bytes(right)) => Some(left.cmp(right)),
        (Val::Foreign(left), Val::Foreign(right)) => left.partial_cmp(right),
        _ => compare_numbers(left, right),
    }
}

pub(super) fn is_ordered(value: &Val<'_>) -> bool {
    order(value, value).is_some() || matches!(value, Val::Double(_))
}

fn compare_numbers(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    let double = |value: &Val<'_>| match value {
        Val::Int(value) => Some(*value as f64),
        Val::Uint(value) => Some(*value as f64),
        Val::Double(value) => Some(*value),
        _ => None,
    };
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => Some(left.cmp(right)),
        (Val::Uint(left), Val::Uint(right)) => Some(left.cmp(right)),
        (Val::Int(left), Val::Uint(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Val::Uint(left), Val::Int(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        _ => double(left)?.partial_cmp(&double(right)?),
    }
}

/// The items of any kind of list.
pub(super) fn items<'a>(value: &Val<'a>) -> Vec<Val<'a>> {
    match value {
        Val::List(list) => list.to_vec(),
        Val::Array(list, node) => {
            let items = node.and_then(|node| node.items.as_deref());
            list.iter().map(|item| Val::view(item, items, ResourceValue::No)).collect()
        }
        _ => Vec::new(),
    }
}

/// The entries of any kind of map, sorted by key.
pub(super) fn entries<'a>(value: &Val<'a>) -> Vec<(MapKey, Val<'a>)> {
    match value {
        Val::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        other => lookup::fields(other)
            .into_iter()
            .map(|(name, value)| (MapKey::Text(name.into()), value))
            .collect(),
    }
}

/// Whether a schema calls a list a set or a map.
pub(super) fn is_unordered(value: &Val<'_>) -> bool {
    matches!(value, Val::Array(_, Some(node)) if node.list != ListType::Atomic)
}

/// The items of a list as texts, in an order that depends on nothing but the items.
fn sorted(value: &Val<'_>) -> Vec<String> {
    let mut texts: Vec<String> = items(value).iter().map(canonical).collect();
    texts.sort();
    texts
}

/// A text that is the same for equal values.
pub(super) fn canonical(value: &Val<'_>) -> String {
    match value {
        Val::Text(text) => format!("{:?}", &**text),
        Val::List(_) | Val::Array(..) if is_unordered(value) => format!("{:?}", sorted(value)),
        Val::List(_) | Val::Array(..) => {
            format!("[{}]", items(value).iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        Val::Map(_) | Val::Object(..) | Val::Entries(..) => {
            let entries = entries(value).into_iter();
            let entries = entries.map(|(key, value)| format!("{key:?}:{}", canonical(&value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        // An integral double prints as the integer that it equals.
        Val::Double(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}
