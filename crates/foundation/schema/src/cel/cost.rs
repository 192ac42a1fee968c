//! Worst cases: how large values can get, and what that makes expressions cost.

use crate::node::{Additional, SchemaNode, Type};

/// The largest request body, in bytes: it bounds what a schema does not.
pub(super) const MAX_REQUEST: u64 = 3 << 20;
/// The limit for the estimated cost of one rule.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
/// The limit for the estimated cost of all rules of a schema together.
pub(super) const SCHEMA_LIMIT: u64 = 100_000_000;

pub(super) fn format(node: &SchemaNode) -> Option<&str> {
    node.validation.as_ref()?.format.as_deref()
}

/// The most characters, items or entries of a value.
pub(super) fn max_size(node: &SchemaNode) -> u64 {
    let validation = node.validation.as_deref();
    match node.ty {
        Type::String | Type::IntOrString => max_text(node),
        Type::Array => {
            let item = node.items.as_deref().map_or(1, min_bytes);
            let most = validation.and_then(|validation| validation.max_items);
            most.unwrap_or((MAX_REQUEST - 2) / (item + 1))
        }
        Type::Object => match &node.additional {
            Additional::Of(values) => {
                let most = validation.and_then(|validation| validation.max_properties);
                // Quotes, colon and comma around an entry.
                most.unwrap_or_else(|| (MAX_REQUEST - 2) / (min_bytes(values) + 6))
            }
            Additional::Anything | Additional::Closed => node.properties.len() as u64,
        },
        Type::Any | Type::Integer | Type::Number | Type::Boolean => 1,
    }
}

fn max_text(node: &SchemaNode) -> u64 {
    let validation = node.validation.as_deref();
    let textual = node.ty == Type::String;
    match format(node).filter(|_| textual) {
        Some("duration" | "date-time") => return 32,
        Some("date") => return 12,
        _ => {}
    }
    if let Some(most) = validation.and_then(|validation| validation.max_length) {
        // Lengths are in characters, of up to four bytes each.
        return most.saturating_mul(if format(node) == Some("byte") { 1 } else { 4 });
    }
    let texts = validation.map(|validation| &*validation.enumeration).unwrap_or_default();
    let longest = texts.iter().filter_map(|text| text.as_str().map(str::len)).max();
    longest.filter(|_| textual).map_or(MAX_REQUEST - 2, |longest| longest as u64)
}

/// The fewest bytes of JSON that a value takes.
pub(super) fn min_bytes(node: &SchemaNode) -> u64 {
    match node.ty {
        Type::Integer | Type::Number | Type::IntOrString | Type::Any => 1,
        Type::Boolean => 4,
        Type::String => match format(node) {
            Some("date") => 12,
            Some("date-time") => 21,
            Some("duration") => 3,
            _ => 2,
        },
        Type::Array => 2,
        Type::Object => {
            let required = node.validation.as_deref().map(|validation| &*validation.required);
            let fields = required.unwrap_or_default().iter().filter_map(|name| {
                let property = node.property(name).filter(|property| property.default.is_none())?;
                Some(name.len() as u64 + min_bytes(property) + 4)
            });
            2 + fields.sum::<u64>()
        }
    }
}

/// How many values of a schema one request can hold.
pub(super) fn max_count(node: &SchemaNode) -> u64 {
    MAX_REQUEST / (min_bytes(node) + 1)
}

/// A size as cost: reading ten characters is one step.
pub(super) fn traversal(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The text of the error for a cost above a limit.
pub(super) fn exceeded(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding \
         maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
