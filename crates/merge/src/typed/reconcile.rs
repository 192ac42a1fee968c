//! Sets that were recorded before the schema changed.

use super::walk::{Kind, Ty};
use crate::path::PathElement;
use crate::set::{Set, SetNode};

/// The set in terms of the schema, or `None` if it already is.
pub(super) fn reconcile(ty: Ty<'_>, set: &Set) -> Option<Set> {
    let mut changed = false;
    let set = level(ty, set, &mut changed);
    changed.then_some(set)
}

fn level(ty: Ty<'_>, set: &Set, changed: &mut bool) -> Set {
    // Unchanged sets, which is nearly all, are only copied once something changed above.
    let nodes = set.nodes.iter().map(|node| match step(ty, &node.element) {
        Some(deeper) => branch(deeper, node, changed),
        None => node.clone(),
    });
    Set { nodes: nodes.collect() }
}

fn branch(ty: Ty<'_>, node: &SetNode, changed: &mut bool) -> SetNode {
    let kind = ty.kind(None);
    let whole = node.member && node.below.is_empty();
    // What became atomic is owned as a whole.
    let became_atomic = !whole
        && match kind {
            Kind::Scalar => false,
            Kind::List => ty.is_atomic(kind),
            Kind::Map => !ty.is_free_map() && ty.is_atomic(kind) && !node.below.is_empty(),
        };
    if became_atomic {
        *changed = true;
        return SetNode { element: node.element.clone(), member: true, below: Set::new() };
    }
    let leave = kind == Kind::Scalar || (kind == Kind::Map && ty.is_free_map());
    let below = if leave { node.below.clone() } else { level(ty, &node.below, changed) };
    SetNode { element: node.element.clone(), member: node.member, below }
}

/// The type one step down; fields that the schema does not know are left alone.
fn step<'a>(ty: Ty<'a>, element: &PathElement) -> Option<Ty<'a>> {
    match ty.kind(None) {
        Kind::Map => match element {
            PathElement::Field(name) => match ty.field(name) {
                Ty::Undeclared => None,
                field => Some(field),
            },
            _ => None,
        },
        Kind::List => Some(ty.item()),
        Kind::Scalar => None,
    }
}
