//! The normal form of a typed object: what decoding a JSON body into upstream's Go struct
//! and encoding it again would make of it.
//!
//! Unknown fields are dropped and reported, `null`s are dropped, wrong JSON types are
//! refused in Go's words, quantities and times become canonical, and what Go leaves out
//! or always writes is left out or written. Defaults of a kind and its validation come later
//! and elsewhere (crate `kinds`).

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use base64::{DecodeError as Base64, alphabet};
use serde_json::{Map, Value};

use crate::table::{Field, Many, Slot, Table, Ty};
use crate::time::{self, Precision, TimeError};
use crate::zero::zero;
use crate::{Quantity, QuantityError};

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
    slot: &'static Slot,
) -> Result<Vec<String>, NormalizeError> {
    let mut walk = Walk::default();
    let place = Place { owner: None, path: Path::Root };
    walk.value(value, Ty::Message(slot), place)?;
    Ok(walk.unknown)
}

/// What was noticed on the way.
#[derive(Debug, Default)]
struct Walk {
    unknown: Vec<String>,
}

impl Walk {
    fn object(
        &mut self,
        object: &mut Map<String, Value>,
        slot: &'static Slot,
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
        for field in slot.always_written() {
            if !object.contains_key(field.name) {
                object.insert(field.name.to_owned(), zero(field.ty));
            }
        }
        Ok(())
    }

    /// Normalises one entry of an object; tells whether it stays.
    fn entry(
        &mut self,
        name: &str,
        value: &mut Value,
        slot: &'static Slot,
        path: &Path<'_>,
    ) -> Result<bool, NormalizeError> {
        let place = Place { owner: Some(slot.name), path: Path::Field(path, name) };
        if let Some(field) = slot.field(name) {
            self.field(value, field, place)?;
            return Ok(!value.is_null() && !is_omitted(value, field));
        }
        if slot.message().kind && matches!(name, "apiVersion" | "kind") {
            return match value {
                Value::String(text) => Ok(!text.is_empty()),
                Value::Null => Ok(false),
                other => Err(place.mismatch(other, "string".to_owned())),
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
        place: Place<'_>,
    ) -> Result<(), NormalizeError> {
        match (field.many, &mut *value) {
            (_, Value::Null) => Ok(()),
            (Many::One, _) => self.value(value, field.ty, place),
            (Many::List, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Index(&place.path, index);
                    self.element(item, field.ty, Place { owner: place.owner, path })?;
                }
                Ok(())
            }
            (Many::Map, Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    let path = Path::Key(&place.path, key);
                    self.element(item, field.ty, Place { owner: place.owner, path })?;
                }
                Ok(())
            }
            (Many::List, other) => Err(place.mismatch(other, format!("[]{}", go_type(field.ty)))),
            (Many::Map, other) => {
                Err(place.mismatch(other, format!("map[string]{}", go_type(field.ty))))
            }
        }
    }

    /// An item of a list or a value of a map: a `null` there is Go's zero.
    fn element(
        &mut self,
        value: &mut Value,
        ty: Ty,
        place: Place<'_>,
    ) -> Result<(), NormalizeError> {
        if value.is_null() {
            *value = zero(ty);
            return Ok(());
        }
        self.value(value, ty, place)
    }

    fn value(&mut self, value: &mut Value, ty: Ty, place: Place<'_>) -> Result<(), NormalizeError> {
        match (ty, &mut *value) {
            (Ty::Message(slot), Value::Object(object)) => self.object(object, slot, &place.path),
            (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
            (Ty::Double, Value::Number(_)) => Ok(()),
            (Ty::Int32 | Ty::Int64, Value::Number(number)) => match number.as_i64() {
                Some(integer) if fits(integer, ty) => Ok(()),
                _ => Err(place.error(format!("number {number}"), go_type(ty))),
            },
            (Ty::Bytes, Value::String(text)) => canonical_base64(text),
            (Ty::Strings, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Index(&place.path, index);
                    self.element(item, Ty::String, Place { owner: place.owner, path })?;
                }
                Ok(())
            }
            (Ty::RawExtension | Ty::FieldsV1 | Ty::Json, _) => Ok(()),
            (Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings, _) => {
                self.schema_or(value, ty, place)
            }
            (Ty::Time | Ty::MicroTime | Ty::Duration | Ty::Quantity | Ty::IntOrString, _) => {
                canonical_scalar(value, ty)
            }
            (_, other) => Err(place.mismatch(other, go_type(ty))),
        }
    }

    fn schema_or(
        &mut self,
        value: &mut Value,
        ty: Ty,
        place: Place<'_>,
    ) -> Result<(), NormalizeError> {
        match (ty, &mut *value) {
            (_, Value::Object(_)) => self.value(value, json_schema(), place),
            (Ty::SchemaOrBool, Value::Bool(_)) => Ok(()),
            (Ty::SchemaOrBool, _) => Err(NormalizeError::Schema),
            (_, Value::Array(items)) => {
                let item_ty =
                    if matches!(ty, Ty::SchemaOrArray) { json_schema() } else { Ty::String };
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path::Index(&place.path, index);
                    self.element(item, item_ty, Place { owner: place.owner, path })?;
                }
                Ok(())
            }
            // Upstream reads whatever else stands here as nothing.
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }
}

/// The special scalars, whose readers know nothing of the field they are in.
fn canonical_scalar(value: &mut Value, ty: Ty) -> Result<(), NormalizeError> {
    let mismatch = |value: &Value, expected: &str| NormalizeError::Value {
        found: json_type(value).to_owned(),
        expected: expected.to_owned(),
    };
    match (ty, &*value) {
        (Ty::Quantity, _) => *value = Quantity::from_json(value)?.to_string().into(),
        (Ty::Time | Ty::MicroTime, Value::String(text)) => {
            let precision =
                if matches!(ty, Ty::Time) { Precision::Seconds } else { Precision::Micros };
            let (seconds, nanos) = time::parse(text, precision)?;
            *value = match time::format(seconds, nanos, precision) {
                Some(text) if seconds != time::ZERO => text.into(),
                _ => Value::Null,
            };
        }
        (Ty::Duration, Value::String(text)) => {
            let nanos = time::parse_duration(text)
                .ok_or_else(|| NormalizeError::Duration { text: text.clone() })?;
            *value = time::format_duration(nanos).into();
        }
        (Ty::IntOrString, Value::String(_)) => {}
        (Ty::IntOrString, Value::Number(number)) => match number.as_i64() {
            Some(integer) if fits(integer, Ty::Int32) => {}
            _ => {
                let found = format!("number {number}");
                return Err(NormalizeError::Value { found, expected: "int32".to_owned() });
            }
        },
        (Ty::IntOrString, other) => return Err(mismatch(other, "int32")),
        (_, other) => return Err(mismatch(other, "string")),
    }
    Ok(())
}

/// Where a value stands: for Go's errors and for the report of unknown fields.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    /// The innermost struct.
    owner: Option<&'static str>,
    path: Path<'a>,
}

impl Place<'_> {
    fn mismatch(&self, found: &Value, expected: String) -> NormalizeError {
        self.error(json_type(found).to_owned(), expected)
    }

    fn error(&self, found: String, expected: String) -> NormalizeError {
        match self.owner {
            Some(owner) => {
                NormalizeError::Field { found, owner, field: self.path.fields(), expected }
            }
            None => NormalizeError::Value { found, expected },
        }
    }
}

/// The way from the root to a value.
#[derive(Debug, Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl Path<'_> {
    /// Go's idea of a path: fields of structs only.
    fn fields(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Index(parent, _) | Self::Key(parent, _) => parent.fields(),
            Self::Field(parent, name) => match parent.fields() {
                above if above.is_empty() => (*name).to_owned(),
                above => format!("{above}.{name}"),
            },
        }
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) | Self::Key(Path::Root, name) => out.write_str(name),
            Self::Field(parent, name) | Self::Key(parent, name) => write!(out, "{parent}.{name}"),
            Self::Index(parent, index) => write!(out, "{parent}[{index}]"),
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

fn fits(integer: i64, ty: Ty) -> bool {
    !matches!(ty, Ty::Int32) || i32::try_from(integer).is_ok()
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(ty: Ty) -> String {
    match ty {
        Ty::String | Ty::Time | Ty::MicroTime | Ty::Duration | Ty::Quantity => "string".to_owned(),
        Ty::Int32 | Ty::IntOrString => "int32".to_owned(),
        Ty::Int64 => "int64".to_owned(),
        Ty::Bool => "bool".to_owned(),
        Ty::Double => "float64".to_owned(),
        Ty::Bytes => "[]uint8".to_owned(),
        Ty::Strings => "[]string".to_owned(),
        Ty::Message(slot) => format!("{}.{}", slot.table.version(), slot.name),
        Ty::RawExtension => "runtime.RawExtension".to_owned(),
        Ty::FieldsV1 => "v1.FieldsV1".to_owned(),
        Ty::Json => "v1.JSON".to_owned(),
        Ty::SchemaOrArray => "v1.JSONSchemaPropsOrArray".to_owned(),
        Ty::SchemaOrBool => "v1.JSONSchemaPropsOrBool".to_owned(),
        Ty::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray".to_owned(),
    }
}

/// Go ignores line breaks and stray bits at the end, and writes neither.
fn canonical_base64(text: &mut String) -> Result<(), NormalizeError> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    text.retain(|c| c != '\n' && c != '\r');
    let bytes = LENIENT.decode(text.as_bytes()).map_err(|error| NormalizeError::Base64 {
        at: match error {
            Base64::InvalidByte(at, _) | Base64::InvalidLastSymbol(at, _) => at,
            Base64::InvalidLength(_) | Base64::InvalidPadding => text.len(),
        },
    })?;
    *text = STANDARD.encode(bytes);
    Ok(())
}

fn json_schema() -> Ty {
    Ty::Message(Table::json_schema())
}

#[cfg(test)]
mod tests;
