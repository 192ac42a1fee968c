//! Filling in the defaults of a schema.
//!
//! A default applies where its parent exists and the field is absent, or is null without
//! being nullable. Other nulls in non-nullable fields are dropped first, as clients that
//! serialise unset pointers expect.

use serde_json::Value;

use crate::node::{Additional, SchemaNode};

/// Drops meaningless nulls, then fills in defaults.
pub fn default(value: &mut Value, schema: &SchemaNode) {
    drop_nulls(value, schema);
    fill(value, schema);
}

/// Drops null fields that may not be null and have no default to take their place.
pub fn drop_nulls(value: &mut Value, schema: &SchemaNode) {
    match value {
        Value::Object(map) => map.retain(|name, value| match schema.field(name) {
            Some(field) if value.is_null() => field.nullable || field.default.is_some(),
            Some(field) => {
                drop_nulls(value, field);
                true
            }
            None => true,
        }),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    drop_nulls(item, items);
                }
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &SchemaNode) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = property.default.as_deref() else { continue };
                match map.get_mut(&**name) {
                    None => {
                        map.insert((**name).to_owned(), default.clone());
                    }
                    Some(value) if value.is_null() && !property.nullable => {
                        *value = default.clone();
                    }
                    Some(_) => {}
                }
            }
            for (name, value) in map {
                if let Some(property) = schema.property(name) {
                    fill(value, property);
                } else if let Additional::Of(schema) = &schema.additional {
                    fill_element(value, schema);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    fill_element(item, items);
                }
            }
        }
        _ => {}
    }
}

/// A map's value or a list's item: it exists already, so that only null can be replaced.
fn fill_element(value: &mut Value, schema: &SchemaNode) {
    if let Some(default) = schema.default.as_deref()
        && value.is_null()
        && !schema.nullable
    {
        *value = default.clone();
    }
    fill(value, schema);
}

#[cfg(test)]
mod tests;
