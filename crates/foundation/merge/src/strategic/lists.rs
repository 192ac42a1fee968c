//! Merging lists by key (objects) or by value (scalars).

use serde_json::Value;

use super::order::{self, ItemIdentity};
use super::{PATCH, SchemaPosition, StrategicError, merge_map, without_directives, wrong_type};

/// The kind of the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementKind {
    Map,
    Scalar,
}

/// The kind of all items of both lists, which must agree.
pub(super) fn element_kind(left: &[Value], right: &[Value]) -> Result<ElementKind, StrategicError> {
    let mut all = left.iter().chain(right);
    let first = match all.next() {
        Some(Value::Array(_)) => return Err(StrategicError::ListOfLists),
        Some(first) => first,
        None => return Err(StrategicError::MixedList("[]".to_owned())),
    };
    let float = |value: &Value| value.as_number().is_some_and(serde_json::Number::is_f64);
    let alike = |other: &Value| {
        std::mem::discriminant(first) == std::mem::discriminant(other)
            && float(first) == float(other)
    };
    if !all.all(alike) {
        let lists = Value::from(vec![Value::from(left), Value::from(right)]);
        return Err(StrategicError::MixedList(lists.to_string()));
    }
    Ok(if first.is_object() { ElementKind::Map } else { ElementKind::Scalar })
}

/// Merges a list whose strategy is to merge.
pub(super) fn merge_list(
    live: Vec<Value>,
    patch: Vec<Value>,
    list: SchemaPosition<'_>,
) -> Result<Vec<Value>, StrategicError> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    match element_kind(&live, &patch)? {
        ElementKind::Scalar => {
            let mut merged: Vec<Value> = Vec::with_capacity(live.len() + patch.len());
            for item in live.iter().chain(&patch) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            order::arrange(merged, &patch, &live, ItemIdentity::Scalar)
        }
        ElementKind::Map => {
            let Some(key) = list.key() else {
                let name = list.item().node.map_or("map", |_| "struct");
                return Err(StrategicError::KeylessList(name.to_owned()));
            };
            let (live, patch) = special_items(live, patch, key)?;
            let merged = merge_items(live.clone(), &patch, key, list.item())?;
            order::arrange(merged, &patch, &live, ItemIdentity::Key(key))
        }
    }
}

/// Applies the items that are directives; returns the list to merge into, and the items to merge.
fn special_items(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let gone = order::key_of(&item, key)?;
                check_maps(&live)?;
                live.retain(|item| item.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(StrategicError::MergeDirective),
            _ => {
                let directive = directive.clone();
                return Err(StrategicError::UnknownDirective { directive, map: item });
            }
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (live, plain) })
}

fn check_maps(items: &[Value]) -> Result<(), StrategicError> {
    match items.iter().find(|item| !item.is_object()) {
        Some(other) => Err(wrong_type("map[string]interface {}", other)),
        None => Ok(()),
    }
}

fn merge_items(
    mut live: Vec<Value>,
    patch: &[Value],
    key: &str,
    place: SchemaPosition<'_>,
) -> Result<Vec<Value>, StrategicError> {
    check_maps(&live)?;
    for item in patch {
        let wanted = order::key_of(item, key)?;
        let found = live.iter_mut().find(|item| item.get(key) == Some(wanted));
        match (found, item) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                *old = merge_map(std::mem::take(old), new.clone(), place)?;
            }
            _ => live.push(item.clone()),
        }
    }
    Ok(live)
}

/// Merges a list and puts it in the order of `$setElementOrder`.
pub(super) fn merge_ordered(
    live: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    wanted: &[Value],
    list: SchemaPosition<'_>,
) -> Result<Vec<Value>, StrategicError> {
    let identity = list.key().map_or(ItemIdentity::Scalar, ItemIdentity::Key);
    order::check(patch.as_deref().unwrap_or(&[]), wanted, identity)?;
    let serverside = match (&live, &patch) {
        (Some(live), Some(patch)) if list.merges() => order::after_edit(live, patch, identity),
        (live, _) => live.clone().unwrap_or_default(),
    };
    let merged = match (live, patch) {
        (Some(live), None) => live,
        (None, Some(patch)) => patch.into_iter().filter_map(without_directives).collect(),
        (Some(live), Some(patch)) if list.merges() => merge_list(live, patch, list)?,
        (Some(_), Some(patch)) => patch,
        (None, None) => Vec::new(),
    };
    order::arrange(merged, wanted, &serverside, identity)
}
