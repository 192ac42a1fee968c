//! The set of fields that a value mentions, and sets completed with the named
//! fields on the way to their members.

use serde_json::Value;

use super::field_element;
use super::walk::{Ty, ValueKind};
use crate::path::PathElement;
use crate::set::{Set, SetNode};

/// Collects what lies below `value` into `below`; whether the value itself is a member.
pub(super) fn collect(ty: Ty<'_>, value: &Value, below: &mut Set) -> bool {
    let kind = ty.kind(Some(value));
    if ty.is_atomic(kind) {
        return true;
    }
    match (kind, value) {
        (ValueKind::Map, Value::Object(fields)) => {
            below.nodes.reserve(fields.len());
            for (name, value) in fields {
                let mut deeper = Set::new();
                let own = collect(ty.field(name), value, &mut deeper);
                let blank = match value {
                    Value::Null => true,
                    Value::Object(fields) => fields.is_empty(),
                    _ => false,
                };
                let member = own || blank || !ty.declares(name);
                below.graft(field_element(name), member, deeper);
            }
        }
        (ValueKind::List, Value::Array(items)) => collect_items(ty, items, below),
        _ => {}
    }
    false
}

/// Items with the same key are one member and nothing below it.
fn collect_items(list: Ty<'_>, items: &[Value], below: &mut Set) {
    let mut found: Vec<(PathElement, &Value)> =
        items.iter().filter_map(|item| Some((list.item_element(item).ok()?, item))).collect();
    found.sort_by(|left, right| left.0.cmp(&right.0));
    below.nodes.reserve(found.len());
    let mut found = found.into_iter().peekable();
    while let Some((element, item)) = found.next() {
        let mut deeper = Set::new();
        let mut unique = true;
        while found.next_if(|next| next.0 == element).is_some() {
            unique = false;
        }
        if unique {
            collect(list.item(), item, &mut deeper);
        }
        below.graft(element, true, deeper);
    }
}

/// Makes every declared field that has members below it a member.
pub(super) fn with_named_parents(ty: Ty<'_>, set: &Set) -> Set {
    let nodes = set.nodes.iter().map(|node| {
        let declared = match &node.element {
            PathElement::Field(name) => reads_as_map(ty) && ty.declares(name),
            _ => false,
        };
        SetNode {
            element: node.element.clone(),
            member: node.member || (declared && !node.below.is_empty()),
            below: match step(ty, &node.element) {
                Some(deeper) => with_named_parents(deeper, &node.below),
                None => node.below.clone(),
            },
        }
    });
    Set { nodes: nodes.collect() }
}

fn reads_as_map(ty: Ty<'_>) -> bool {
    ty.kind(None) == ValueKind::Map
}

/// The type one step down, where a schema defines it.
fn step<'a>(ty: Ty<'a>, element: &PathElement) -> Option<Ty<'a>> {
    match element {
        PathElement::Field(name) if reads_as_map(ty) => Some(ty.field(name)),
        PathElement::Key(_) => Some(ty.item()),
        _ => None,
    }
}
