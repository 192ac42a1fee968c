//! A JSON value → a message on the wire, byte for byte as upstream writes it: fields in
//! ascending order, and those that Go holds by value even when they are zero.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::EncodeError;
use super::reader::{Wire, put_bytes, put_key, put_nested, put_number};
use super::special::{Wrong, put_special};
use crate::depth::depth;
use crate::table::{Field, Many, MessageSlot, Ty};

/// Values from outside are at most this deep, as JSON readers accept.
const DEPTH: usize = 130;

/// Appends the bare message of an object; fields that the type does not know are ignored.
pub(crate) fn encode_message(
    slot: &'static MessageSlot,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if depth(value, DEPTH) > DEPTH {
        return Err(EncodeError::TooDeep);
    }
    message(slot, value, out)
}

/// The same for a value whose depth is known to be bounded.
pub(super) fn message(
    slot: &'static MessageSlot,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match value {
        Value::Object(object) => fields(slot, object, out),
        Value::Null => fields(slot, &Map::new(), out),
        _ => Err(EncodeError::Type { message: slot.name, field: "", expected: "an object" }),
    }
}

fn fields(
    slot: &'static MessageSlot,
    object: &Map<String, Value>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for field in &slot.message().fields {
        if let Some(inlined) = field.inlined() {
            put_nested(out, field.number, |out| fields(inlined, object, out))?;
            continue;
        }
        let set = object.get(field.name).filter(|value| !value.is_null());
        let wrong =
            |expected| EncodeError::Type { message: slot.name, field: field.name, expected };
        match (field.many, set) {
            (Many::One, Some(value)) => put_value(slot, field, field.number, value, out)?,
            (Many::One, None) if field.pointer => {}
            (Many::One, None) => put_zero(field.ty, field.number, out)?,
            (_, None) => {}
            (Many::List, Some(list)) => {
                for item in list.as_array().ok_or(wrong("a list"))? {
                    put_value(slot, field, field.number, item, out)?;
                }
            }
            (Many::Map, Some(map)) => {
                for (key, value) in map.as_object().ok_or(wrong("a map"))? {
                    put_nested(out, field.number, |out| {
                        put_bytes(out, 1, key.as_bytes());
                        put_value(slot, field, 2, value, out)
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn put_value(
    slot: &'static MessageSlot,
    field: &Field,
    number: u32,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if value.is_null() {
        return put_zero(field.ty, number, out);
    }
    let wrong = |expected| EncodeError::Type { message: slot.name, field: field.name, expected };
    match field.ty {
        Ty::String => put_bytes(out, number, value.as_str().ok_or(wrong("a string"))?.as_bytes()),
        Ty::Int32 | Ty::Int64 => {
            let integer = value.as_i64().ok_or(wrong("an integer"))?;
            put_number(out, number, integer.cast_unsigned());
        }
        Ty::Bool => put_number(out, number, value.as_bool().ok_or(wrong("a boolean"))?.into()),
        Ty::Double => {
            put_key(out, number, Wire::Fixed64);
            let double = value.as_f64().ok_or(wrong("a number"))?;
            out.extend_from_slice(&double.to_le_bytes());
        }
        Ty::Bytes => {
            let text = value.as_str().and_then(|text| STANDARD.decode(text).ok());
            put_bytes(out, number, &text.ok_or(wrong("base64"))?);
        }
        Ty::Message(inner) => put_nested(out, number, |out| message(inner, value, out))?,
        special => put_nested(out, number, |out| {
            put_special(special, value, out).map_err(|problem| match problem {
                Wrong::Form(expected) => wrong(expected),
                Wrong::Inner(error) => error,
            })
        })?,
    }
    Ok(())
}

/// Upstream's encoding of a value that was never set.
fn put_zero(ty: Ty, number: u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match ty {
        Ty::String => put_bytes(out, number, b""),
        Ty::Int32 | Ty::Int64 | Ty::Bool => put_number(out, number, 0),
        Ty::Double => {
            put_key(out, number, Wire::Fixed64);
            out.extend_from_slice(&0f64.to_le_bytes());
        }
        // nil slices
        Ty::Bytes | Ty::Strings => {}
        Ty::Message(inner) => {
            put_nested(out, number, |out| fields(inner, &Map::new(), out))?;
        }
        Ty::Quantity => put_nested(out, number, |out| {
            put_bytes(out, 1, b"0");
            Ok::<(), EncodeError>(())
        })?,
        Ty::IntOrString => put_nested(out, number, |out| {
            put_number(out, 1, 0);
            put_number(out, 2, 0);
            put_bytes(out, 3, b"");
            Ok::<(), EncodeError>(())
        })?,
        Ty::Duration => put_nested(out, number, |out| {
            put_number(out, 1, 0);
            Ok::<(), EncodeError>(())
        })?,
        Ty::Time
        | Ty::MicroTime
        | Ty::RawExtension
        | Ty::FieldsV1
        | Ty::Json
        | Ty::SchemaOrArray
        | Ty::SchemaOrBool
        | Ty::SchemaOrStrings => put_bytes(out, number, b""),
    }
    Ok(())
}
