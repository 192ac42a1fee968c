//! Values seen through their schema: which fields they have, how two of them
//! differ, and how one is laid over another. Owns the reading of a schema as
//! "map, list or scalar"; knows nothing of managers.

use schema::Schema;
use serde_json::Value;

use crate::path::PathElement;
use crate::set::Set;

mod compare;
mod fields;
mod merge;
mod reconcile;
mod remove;
mod validate;
mod walk;

pub use compare::Comparison;
pub use validate::{Duplicates, Faults, FieldFault};
pub(crate) use walk::Ty;

/// Every field that the value mentions. Items that cannot be distinguished count once.
pub fn to_field_set(value: &Value, schema: &Schema) -> Set {
    let mut set = Set::new();
    fields::collect(Ty::root(schema), value, &mut set);
    set
}

/// How `new` differs from `old`.
pub fn compare(old: &Value, new: &Value, schema: &Schema) -> Result<Comparison, Faults> {
    compare::compare(Ty::root(schema), Some(old), Some(new))
}

/// Lays the partial object `config` over `live`: its values win, nothing is removed.
/// `None` if nothing is left, as when both are empty lists of nothing.
pub fn merge(live: &Value, config: &Value, schema: &Schema) -> Result<Option<Value>, Faults> {
    merge::merge(Ty::root(schema), Some(live), Some(config))
}

/// The value without the given fields and items.
pub fn remove_items(value: &Value, items: &Set, schema: &Schema) -> Value {
    remove::remove(Ty::root(schema), value, items)
}

/// Only the given fields and items of the value. Pass [`Set::leaves`] of what a manager
/// owns: a member brings all that lies below it.
pub fn extract_items(value: &Value, items: &Set, schema: &Schema) -> Value {
    remove::extract(Ty::root(schema), value, items)
}

/// Whether the value fits its schema as far as merging is concerned.
pub fn validate(value: &Value, schema: &Schema, duplicates: Duplicates) -> Result<(), Faults> {
    validate::validate(Ty::root(schema), value, duplicates)
}

/// A set that was recorded under an older schema, in terms of this one: a list or map
/// that became atomic is now owned as a whole. `None` if nothing changes.
pub fn reconcile_field_set_with_schema(set: &Set, schema: &Schema) -> Option<Set> {
    reconcile::reconcile(Ty::root(schema), set)
}

/// The set with every declared field on the way to a member as a member too.
pub(crate) fn with_named_parents(set: &Set, schema: &Schema) -> Set {
    fields::with_named_parents(Ty::root(schema), set)
}

fn field_element(name: &str) -> PathElement {
    PathElement::field(name)
}

#[cfg(test)]
mod tests;
