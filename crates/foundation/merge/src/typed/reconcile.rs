//! Sets that were recorded before the schema changed.

use super::walk::{Ty, ValueKind};
use crate::path::PathElement;
use crate::set::{Set, SetNode};

/// The set in terms of the schema, or `None` if it already is, which is nearly always.
pub(super) fn reconcile(ty: Ty<'_>, set: &Set) -> Option<Set> {
    is_stale(ty, set).then(|| level(ty, set))
}

fn is_stale(ty: Ty<'_>, set: &Set) -> bool {
    set.nodes.iter().any(|node| {
        step(ty, &node.element).is_some_and(|deeper| {
            became_atomic(deeper, node) || (descends(deeper) && is_stale(deeper, &node.below))
        })
    })
}

fn level(ty: Ty<'_>, set: &Set) -> Set {
    let nodes = set.nodes.iter().map(|node| {
        let element = node.element.clone();
        match step(ty, &node.element) {
            // A field that became atomic is owned as a whole.
            Some(deeper) if became_atomic(deeper, node) => {
                SetNode { element, member: true, below: Set::new() }
            }
            Some(deeper) if descends(deeper) => {
                SetNode { element, member: node.member, below: level(deeper, &node.below) }
            }
            _ => node.clone(),
        }
    });
    Set { nodes: nodes.collect() }
}

fn became_atomic(ty: Ty<'_>, node: &SetNode) -> bool {
    let kind = ty.kind(None);
    match kind {
        ValueKind::Scalar => false,
        ValueKind::List => ty.is_atomic(kind) && !node.below.is_empty(),
        ValueKind::Map => ty.is_atomic(kind) && !ty.is_free_map() && !node.below.is_empty(),
    }
}

/// Whether the schema has anything to say below.
fn descends(ty: Ty<'_>) -> bool {
    match ty.kind(None) {
        ValueKind::Scalar => false,
        ValueKind::List => true,
        ValueKind::Map => !ty.is_free_map(),
    }
}

/// The type one step down; fields that the schema does not know are left alone.
fn step<'a>(ty: Ty<'a>, element: &PathElement) -> Option<Ty<'a>> {
    match ty.kind(None) {
        ValueKind::Map => match element {
            PathElement::Field(name) => match ty.field(name) {
                Ty::Undeclared => None,
                field => Some(field),
            },
            _ => None,
        },
        ValueKind::List => Some(ty.item()),
        ValueKind::Scalar => None,
    }
}
