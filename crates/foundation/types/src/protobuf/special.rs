//! The types whose JSON is not what their protobuf message suggests: times, quantities,
//! embedded JSON and the like.

use serde_json::Value;

use super::decode::{DEPTH, Decoder, MessagePosition};
use super::encode::message;
use super::reader::{Reader, Wire, put_bytes, put_nested, put_number};
use super::{DecodeError, EncodeError, Envelope, MAGIC};
use crate::Quantity;
use crate::depth::depth;
use crate::table::{Table, Ty};
use crate::time::{self, Precision};

impl Decoder {
    /// Decodes the message of a special type.
    pub(super) fn special(
        &mut self,
        ty: Ty,
        bytes: &[u8],
        place: MessagePosition,
    ) -> Result<Value, DecodeError> {
        let bad = |ty| DecodeError::Special { message: place.message, field: place.field, ty };
        match ty {
            Ty::Time => timestamp(bytes, Precision::Seconds, place)?.ok_or(bad("time")),
            Ty::MicroTime => timestamp(bytes, Precision::Micros, place)?.ok_or(bad("time")),
            Ty::Duration => {
                let nanos = first_number(bytes, place)?.cast_signed();
                Ok(time::format_duration(nanos).into())
            }
            Ty::Quantity => {
                let text = place.text(first_bytes(bytes, place)?.unwrap_or(b"0"))?;
                if text.is_empty() {
                    return Ok("0".into());
                }
                let quantity: Quantity = text.parse().map_err(|_| bad("quantity"))?;
                Ok(quantity.to_string().into())
            }
            Ty::IntOrString => int_or_string(bytes, place),
            Ty::RawExtension => match first_bytes(bytes, place)? {
                None | Some([]) => Ok(Value::Null),
                Some(raw) if raw.starts_with(&MAGIC) => self.embedded(Envelope::parse(raw)?),
                Some(raw) => self.json(raw)?.ok_or(bad("JSON")),
            },
            Ty::FieldsV1 | Ty::Json => match first_bytes(bytes, place)? {
                None | Some([]) => Ok(Value::Null),
                Some(raw) => self.json(raw)?.ok_or(bad("JSON")),
            },
            Ty::Strings => {
                let mut items = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, wire)) = reader.key()? {
                    match number {
                        1 => items.push(self.value(Ty::String, wire, &mut reader, place)?),
                        _ => reader.skip(wire)?,
                    }
                }
                Ok(Value::Array(items))
            }
            Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => {
                self.schema_or(ty, bytes, place)
            }
            Ty::String
            | Ty::Int32
            | Ty::Int64
            | Ty::Bool
            | Ty::Double
            | Ty::Bytes
            | Ty::Message(_) => unreachable!("not a special type"),
        }
    }

    /// A whole object inside another one, in protobuf itself.
    fn embedded(&mut self, envelope: Envelope<'_>) -> Result<Value, DecodeError> {
        let slot = envelope.kind()?.slot();
        let mut object = self.object(slot, envelope.raw)?;
        object.insert("apiVersion".to_owned(), envelope.api_version.into());
        object.insert("kind".to_owned(), envelope.kind.into());
        Ok(Value::Object(object))
    }

    /// JSON text inside protobuf; `None` if it is none.
    fn json(&self, raw: &[u8]) -> Result<Option<Value>, DecodeError> {
        let value = serde_json::from_slice(raw).ok();
        if value.as_ref().is_some_and(|value| depth(value, DEPTH) + self.depth > DEPTH) {
            return Err(DecodeError::TooDeep);
        }
        Ok(value)
    }

    /// A JSON schema, or what may replace it.
    fn schema_or(
        &mut self,
        ty: Ty,
        bytes: &[u8],
        place: MessagePosition,
    ) -> Result<Value, DecodeError> {
        let (mut allows, mut one, mut many) = (false, None, Vec::new());
        let schema = Ty::Message(Table::json_schema());
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            match (ty, number) {
                (Ty::SchemaOrBool, 1) => allows = place.varint(&mut reader, wire)? != 0,
                (Ty::SchemaOrBool, 2) | (Ty::SchemaOrArray | Ty::SchemaOrStrings, 1) => {
                    one = Some(self.value(schema, wire, &mut reader, place)?);
                }
                (Ty::SchemaOrArray, 2) => {
                    many.push(self.value(schema, wire, &mut reader, place)?)
                }
                (Ty::SchemaOrStrings, 2) => {
                    many.push(self.value(Ty::String, wire, &mut reader, place)?);
                }
                _ => reader.skip(wire)?,
            }
        }
        Ok(match (ty, one) {
            (_, _) if !many.is_empty() => Value::Array(many),
            (_, Some(schema)) => schema,
            (Ty::SchemaOrBool, None) => allows.into(),
            (_, None) => Value::Null,
        })
    }
}

/// Encodes the message of a special type.
pub(super) fn put_special(ty: Ty, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
    match ty {
        Ty::Time => put_timestamp(value, Precision::Seconds, out),
        Ty::MicroTime => put_timestamp(value, Precision::Micros, out),
        Ty::Duration => {
            let nanos = value.as_str().and_then(time::parse_duration);
            put_number(out, 1, nanos.ok_or(Wrong::Form("a duration"))?.cast_unsigned());
            Ok(())
        }
        Ty::Quantity => {
            let quantity = Quantity::from_json(value).map_err(|_| Wrong::Form("a quantity"))?;
            put_bytes(out, 1, quantity.to_string().as_bytes());
            Ok(())
        }
        Ty::IntOrString => {
            let (ty, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                _ => (0, value.as_i64().ok_or(Wrong::Form("an integer or a string"))?, ""),
            };
            put_number(out, 1, ty);
            put_number(out, 2, number.cast_unsigned());
            put_bytes(out, 3, text.as_bytes());
            Ok(())
        }
        Ty::RawExtension | Ty::FieldsV1 | Ty::Json => {
            put_bytes(out, 1, value.to_string().as_bytes());
            Ok(())
        }
        Ty::Strings => put_strings(out, 1, value),
        Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => put_schema_or(ty, value, out),
        Ty::String | Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double | Ty::Bytes | Ty::Message(_) => {
            unreachable!("not a special type")
        }
    }
}

/// Why a value of a special type cannot be written.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It is not what is named here.
    Form(&'static str),
    Inner(EncodeError),
}

fn put_schema_or(ty: Ty, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let schema = Table::json_schema();
    let mut put = |number, value: &Value| {
        put_nested(out, number, |out| message(schema, value, out)).map_err(Wrong::Inner)
    };
    match (ty, value) {
        (Ty::SchemaOrBool, Value::Bool(allows)) => {
            put_number(out, 1, u64::from(*allows));
            Ok(())
        }
        (Ty::SchemaOrBool, Value::Object(_)) => {
            put_number(out, 1, 1);
            put_nested(out, 2, |out| message(schema, value, out)).map_err(Wrong::Inner)
        }
        (Ty::SchemaOrArray | Ty::SchemaOrStrings, Value::Object(_)) => put(1, value),
        (Ty::SchemaOrArray, Value::Array(items)) => items.iter().try_for_each(|item| put(2, item)),
        (Ty::SchemaOrStrings, Value::Array(_)) => put_strings(out, 2, value),
        _ => Err(Wrong::Form("a JSON schema or its alternative")),
    }
}

fn put_strings(out: &mut Vec<u8>, number: u32, value: &Value) -> Result<(), Wrong> {
    const FORM: Wrong = Wrong::Form("a list of strings");
    for item in value.as_array().ok_or(FORM)? {
        put_bytes(out, number, item.as_str().ok_or(FORM)?.as_bytes());
    }
    Ok(())
}

fn timestamp(
    bytes: &[u8],
    precision: Precision,
    place: MessagePosition,
) -> Result<Option<Value>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Some(Value::Null));
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.key()? {
        match number {
            1 => seconds = place.varint(&mut reader, wire)?.cast_signed(),
            2 => nanos = place.varint(&mut reader, wire)?.cast_signed(),
            _ => reader.skip(wire)?,
        }
    }
    let nanos = i32::try_from(nanos.clamp(0, 999_999_999)).unwrap_or(0);
    if seconds == time::ZERO {
        return Ok(Some(Value::Null));
    }
    Ok(time::format(seconds, nanos, precision).map(Value::String))
}

fn put_timestamp(value: &Value, precision: Precision, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let text = value.as_str().ok_or(Wrong::Form("a time"))?;
    let (seconds, nanos) = time::parse(text, precision).map_err(|_| Wrong::Form("a time"))?;
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => nanos / 1000 * 1000,
    };
    if seconds != time::ZERO {
        put_number(out, 1, seconds.cast_unsigned());
        put_number(out, 2, u64::from(nanos.unsigned_abs()));
    }
    Ok(())
}

fn int_or_string(bytes: &[u8], place: MessagePosition) -> Result<Value, DecodeError> {
    let (mut ty, mut number, mut text) = (0, 0, &b""[..]);
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.key()? {
        match field {
            1 => ty = place.varint(&mut reader, wire)?,
            2 => number = place.varint(&mut reader, wire)?.cast_signed() as i32,
            3 => text = place.bytes(&mut reader, wire)?,
            _ => reader.skip(wire)?,
        }
    }
    if ty == 0 { Ok(number.into()) } else { Ok(place.text(text)?.into()) }
}

/// Field 1 of a wrapper message.
fn first_bytes(bytes: &[u8], place: MessagePosition) -> Result<Option<&[u8]>, DecodeError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.key()? {
        match number {
            1 => found = Some(place.bytes(&mut reader, wire)?),
            _ => reader.skip(wire)?,
        }
    }
    Ok(found)
}

fn first_number(bytes: &[u8], place: MessagePosition) -> Result<u64, DecodeError> {
    let mut found = 0;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.key()? {
        match (number, wire) {
            (1, Wire::Varint) => found = reader.varint()?,
            (1, _) => {
                return Err(DecodeError::WireType { message: place.message, field: place.field });
            }
            _ => reader.skip(wire)?,
        }
    }
    Ok(found)
}
