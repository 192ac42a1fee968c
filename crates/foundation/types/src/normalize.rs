//! The normal form of a typed object: the result of decoding a JSON body into upstream's Go struct
//! and encoding it again.
//!
//! Unknown fields are dropped and reported, `null`s are dropped, wrong JSON types are
//! refused in Go's words, quantities and times become canonical, and what Go leaves out
//! or always writes is left out or written. Defaults of a kind and its validation come later
//! and elsewhere (crate `kinds`).

mod place;
mod scalar;

use serde_json::{Map, Value};

use self::place::{FieldPosition, Path, go_type};
use self::scalar::{bytes_of, canonical, canonical_base64, fits};
use crate::QuantityError;
use crate::table::{Field, Many, MessageSlot, Table, Ty};
use crate::time::TimeError;
use crate::zero::zero;

/// Upstream reports no more unknown fields than this.
const MOST_UNKNOWN: usize = 100;

/// Why a JSON value is not an object of its kind. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NormalizeError {
    #[error(
        "json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {expected}"
    )]
    Field { found: String, owner: &'static str, field: String, expected: String },
    #[error("json: cannot unmarshal {found} into Go value of type {expected}")]
    Value { found: String, expected: String },
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error("time: invalid duration {text:?}")]
    Duration { text: String },
    #[error("illegal base64 data at input byte {at}")]
    Base64 { at: usize },
    #[error("boolean or JSON schema expected")]
    Schema,
}

/// Brings an object into normal form; returns the paths of the fields that its type
/// does not have (`spec.containers[0].bar`), which are gone from it.
pub(crate) fn normalize(
    value: &mut Value,
    slot: &'static MessageSlot,
    filling: Filling,
) -> Result<Vec<String>, NormalizeError> {
    let mut walk = Walk { filling, ..Walk::default() };
    walk.value(value, Ty::Message(slot), None, FieldPosition::ROOT)?;
    walk.mismatch.map_or(Ok(walk.unknown), Err)
}

/// The treatment of fields that are absent or have their zero value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filling {
    /// As in a Go struct: zeros are left out or always written, by the type's own rule.
    #[default]
    Whole,
    /// Left as they are: an applied configuration owns what it says and nothing else.
    Sparse,
}

/// The findings of a walk over an object.
#[derive(Debug, Default)]
struct Walk {
    filling: Filling,
    unknown: Vec<String>,
    /// The first value of a wrong type. Go reads on after it: an error inside a value that decodes
    /// itself (a time, a quantity) is reported in its place.
    mismatch: Option<NormalizeError>,
}

impl Walk {
    fn object(
        &mut self,
        object: &mut Map<String, Value>,
        slot: &'static MessageSlot,
        path: &Path<'_>,
    ) -> Result<(), NormalizeError> {
        let mut result = Ok(());
        object.retain(|name, value| {
            if result.is_err() {
                return true;
            }
            match self.entry(name, value, slot, path) {
                Ok(kept) => kept,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        result?;
        if self.filling == Filling::Sparse {
            return Ok(());
        }
        for field in slot.always_written() {
            if !object.contains_key(field.name) {
                object.insert(field.name.to_owned(), zero(field.ty));
            }
        }
        Ok(())
    }

    /// Normalises one entry of an object; returns whether it stays.
    fn entry(
        &mut self,
        name: &str,
        value: &mut Value,
        slot: &'static MessageSlot,
        path: &Path<'_>,
    ) -> Result<bool, NormalizeError> {
        let place = FieldPosition { owner: Some(slot.name), path: Path::Field(path, name, slot) };
        if let Some(field) = slot.field(name) {
            self.field(value, field, place)?;
            let omitted = self.filling == Filling::Whole && is_omitted(value, field);
            return Ok(!value.is_null() && !omitted);
        }
        if slot.message().kind && matches!(name, "apiVersion" | "kind") {
            return match value {
                Value::String(text) => Ok(!text.is_empty()),
                Value::Null => Ok(false),
                other => {
                    self.save(place.mismatch(other, "string"));
                    Ok(true)
                }
            };
        }
        let at = place.path.to_string();
        if self.unknown.len() < MOST_UNKNOWN && !self.unknown.contains(&at) {
            self.unknown.push(at);
        }
        Ok(false)
    }

    fn field(
        &mut self,
        value: &mut Value,
        field: &Field,
        place: FieldPosition<'_>,
    ) -> Result<(), NormalizeError> {
        let item = field.go.and_then(|go| go_item(go, field.many));
        match (field.many, &mut *value) {
            (_, Value::Null) => Ok(()),
            (Many::One, _) => self.value(value, field.ty, field.go, place),
            (Many::List, Value::Array(items)) => self.items(items, field.ty, item, &place),
            (Many::Map, Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    self.element(value, field.ty, item, place.key(key))?;
                }
                Ok(())
            }
            (Many::List | Many::Map, other) => {
                let many = if field.many == Many::List { "[]" } else { "map[string]" };
                let plain = || format!("{many}{}", go_type(field.ty));
                let expected = field.go.map_or_else(plain, str::to_owned);
                self.save(place.mismatch(other, &expected));
                Ok(())
            }
        }
    }

    fn items(
        &mut self,
        items: &mut [Value],
        ty: Ty,
        go: Option<&'static str>,
        place: &FieldPosition<'_>,
    ) -> Result<(), NormalizeError> {
        for (index, item) in items.iter_mut().enumerate() {
            self.element(item, ty, go, place.index(index))?;
        }
        Ok(())
    }

    /// An item of a list or a value of a map: a `null` there is Go's zero.
    fn element(
        &mut self,
        value: &mut Value,
        ty: Ty,
        go: Option<&'static str>,
        place: FieldPosition<'_>,
    ) -> Result<(), NormalizeError> {
        if value.is_null() {
            *value = zero(ty);
            return Ok(());
        }
        self.value(value, ty, go, place)
    }

    /// `go` is the name of the type in Go, where it is not plain.
    fn value(
        &mut self,
        value: &mut Value,
        ty: Ty,
        go: Option<&'static str>,
        place: FieldPosition<'_>,
    ) -> Result<(), NormalizeError> {
        let expected = || go.map_or_else(|| go_type(ty), str::to_owned);
        match (ty, &mut *value) {
            (Ty::Message(slot), Value::Object(object)) => self.object(object, slot, &place.path)?,
            (Ty::String, Value::String(_))
            | (Ty::Bool, Value::Bool(_))
            | (Ty::Double, Value::Number(_))
            | (Ty::RawExtension | Ty::FieldsV1 | Ty::Json, _) => {}
            (Ty::Int32 | Ty::Int64, Value::Number(number)) => {
                if !number.as_i64().is_some_and(|integer| fits(integer, ty)) {
                    self.save(place.error(format!("number {number}"), &expected()));
                }
            }
            (Ty::Bytes, Value::String(text)) => {
                if let Err(error) = canonical_base64(text) {
                    self.save(error);
                }
            }
            (Ty::Bytes, Value::Array(items)) => match bytes_of(items) {
                Ok(text) => *value = text.into(),
                Err(item) => self.save(place.mismatch(item, "uint8")),
            },
            (Ty::Strings, Value::Array(items)) => self.items(items, Ty::String, None, &place)?,
            (Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings, _) => {
                self.schema_or(value, ty, place)?;
            }
            (Ty::Time | Ty::MicroTime | Ty::Duration | Ty::Quantity | Ty::IntOrString, _) => {
                canonical(value, ty, &place)?;
            }
            (_, other) => self.save(place.mismatch(other, &expected())),
        }
        Ok(())
    }

    fn schema_or(
        &mut self,
        value: &mut Value,
        ty: Ty,
        place: FieldPosition<'_>,
    ) -> Result<(), NormalizeError> {
        let schema = Ty::Message(Table::json_schema());
        match (ty, &mut *value) {
            (_, Value::Object(_)) => self.value(value, schema, None, place),
            (Ty::SchemaOrBool, Value::Bool(_)) => Ok(()),
            (Ty::SchemaOrBool, _) => Err(NormalizeError::Schema),
            (Ty::SchemaOrArray, Value::Array(items)) => self.items(items, schema, None, &place),
            (_, Value::Array(items)) => self.items(items, Ty::String, None, &place),
            // Upstream reads any other value here as nothing.
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }

    fn save(&mut self, error: NormalizeError) {
        self.mismatch.get_or_insert(error);
    }
}

/// The type of an item, from Go's name of a list or map type; `None` for one with a name
/// of its own.
fn go_item(go: &'static str, many: Many) -> Option<&'static str> {
    match many {
        Many::One => None,
        Many::List => go.strip_prefix("[]"),
        Many::Map => {
            go.strip_prefix("map[").and_then(|go| go.split_once(']')).map(|(_, item)| item)
        }
    }
}

/// Whether `omitempty` leaves this value out.
pub(crate) fn is_omitted(value: &Value, field: &Field) -> bool {
    if !field.omit || field.pointer {
        return false;
    }
    match (field.many, value) {
        (Many::List, Value::Array(items)) => items.is_empty(),
        (Many::Map, Value::Object(map)) => map.is_empty(),
        (Many::One, _) => match (field.ty, value) {
            (Ty::String | Ty::Bytes, Value::String(text)) => text.is_empty(),
            (Ty::Int32 | Ty::Int64 | Ty::Double, Value::Number(number)) => {
                number.as_f64() == Some(0.0)
            }
            (Ty::Bool, Value::Bool(set)) => !set,
            (Ty::Strings, Value::Array(items)) => items.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests;
