//! Every field or item that a junctor narrows must also exist outside of it.

use super::raw::Raw;
use crate::field::{FieldError, Path};

pub(super) fn check(raw: Raw<'_>, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_values(raw, raw, at, at, &mut errors);
    errors
}

/// `values` narrows what `structure` declares; each has its own path.
fn check_values(
    values: Raw<'_>,
    structure: Raw<'_>,
    structure_at: &Path<'_>,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(schema) = values.not() {
        check_nested(schema, Some(structure), structure_at, &at.field("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let at = at.field(name);
        for (index, schema) in values.schemas(name).enumerate() {
            check_nested(schema, Some(structure), structure_at, &at.index(index), errors);
        }
    }
}

fn check_nested(
    values: Raw<'_>,
    structure: Option<Raw<'_>>,
    structure_at: &Path<'_>,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(structure) = structure else {
        errors.push(FieldError::required(structure_at, format!("because it is defined in {at}")));
        return;
    };
    check_values(values, structure, structure_at, at, errors);
    if let Some(items) = values.items() {
        let structure_at = structure_at.field("items");
        check_nested(items, structure.items(), &structure_at, &at.field("items"), errors);
    }
    let (parent, at) = (structure_at.field("properties"), at.field("properties"));
    for (name, property) in values.properties() {
        let declared = structure.property(name);
        check_nested(property, declared, &parent.key(name), &at.key(name), errors);
    }
}
