//! Equality and order.

use std::cmp::Ordering;

use serde_json::Value;

use super::library;
use super::lookup;
use super::value::{Key, Resource, Val};
use crate::node::{ListType, Node};

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
        (Val::Array(left, Some(node)), Val::Array(right, _))
            if node.list != ListType::Atomic && left.len() == right.len() =>
        {
            unordered(left, node) == unordered(right, node)
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
            list.iter().map(|item| Val::view(item, items, Resource::No)).collect()
        }
        _ => Vec::new(),
    }
}

/// The entries of any kind of map, sorted by key.
pub(super) fn entries<'a>(value: &Val<'a>) -> Vec<(Key, Val<'a>)> {
    match value {
        Val::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        other => lookup::fields(other)
            .into_iter()
            .map(|(name, value)| (Key::Text(name.into()), value))
            .collect(),
    }
}

/// A set's items, or a list map's items with their keys first, in an order of their own.
fn unordered(list: &[Value], node: &Node) -> Vec<String> {
    let mut texts: Vec<String> = match &node.list {
        ListType::Map(keys) => list
            .iter()
            .map(|item| {
                let keys: Vec<&Value> = keys.iter().filter_map(|key| item.get(&**key)).collect();
                format!("{keys:?}{item}")
            })
            .collect(),
        ListType::Set | ListType::Atomic => list.iter().map(ToString::to_string).collect(),
    };
    texts.sort();
    texts
}
