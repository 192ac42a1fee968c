//! A message on the wire → a JSON value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::DecodeError;
use super::reader::{Reader, Wire};
use crate::normalize::is_omitted;
use crate::table::{Field, Many, MessageSlot, Ty};
use crate::zero::zero;

/// How deeply values may nest. JSON readers (ours too) stop at 128.
pub(super) const DEPTH: usize = 110;

/// Decodes a bare message; apiVersion and kind are not part of it.
pub(crate) fn decode_message(
    slot: &'static MessageSlot,
    bytes: &[u8],
) -> Result<Map<String, Value>, DecodeError> {
    // Three bytes are the shortest useful list item. The bound keeps a body of tiny
    // empty messages from growing a hundredfold in memory.
    let mut decoder = Decoder { left: 65_536 + bytes.len() / 3, depth: 0 };
    decoder.object(slot, bytes)
}

/// The state of decoding: the remaining budget, and the current depth.
#[derive(Debug)]
pub(super) struct Decoder {
    left: usize,
    pub(super) depth: usize,
}

impl Decoder {
    /// One message with everything that Go would print for it.
    pub(super) fn object(
        &mut self,
        slot: &'static MessageSlot,
        bytes: &[u8],
    ) -> Result<Map<String, Value>, DecodeError> {
        self.descend(|this| {
            let mut object = Map::new();
            this.fields(slot, bytes, &mut object)?;
            for field in slot.always_written() {
                if !object.contains_key(field.name) {
                    this.spend()?;
                    object.insert(field.name.to_owned(), zero(field.ty));
                }
            }
            Ok(object)
        })
    }

    fn fields(
        &mut self,
        slot: &'static MessageSlot,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let message = slot.message();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            let Some(field) = message.numbered(number) else {
                reader.skip(wire)?;
                continue;
            };
            let place = MessagePosition { message: slot.name, field: field.name };
            match (field.inlined(), field.many) {
                (Some(inlined), _) => {
                    let bytes = place.bytes(&mut reader, wire)?;
                    self.descend(|this| this.fields(inlined, bytes, into))?;
                }
                (None, Many::One) => {
                    let value = self.value(field.ty, wire, &mut reader, place)?;
                    if value.is_null() || is_omitted(&value, field) {
                        into.remove(field.name);
                    } else {
                        into.insert(field.name.to_owned(), value);
                    }
                }
                (None, Many::List) => self.item(field, wire, &mut reader, place, into)?,
                (None, Many::Map) => {
                    let bytes = place.bytes(&mut reader, wire)?;
                    self.entry(field, bytes, place, into)?;
                }
            }
        }
        Ok(())
    }

    fn item(
        &mut self,
        field: &Field,
        wire: Wire,
        reader: &mut Reader<'_>,
        place: MessagePosition,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let packed = wire == Wire::Bytes
            && matches!(field.ty, Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double);
        let list = into.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(list) = list else {
            unreachable!("a field is a list or it is not");
        };
        if !packed {
            let value = self.descend(|this| this.value(field.ty, wire, reader, place))?;
            list.push(value);
            return Ok(());
        }
        let mut reader = Reader::new(reader.bytes()?);
        let wire = if matches!(field.ty, Ty::Double) { Wire::Fixed64 } else { Wire::Varint };
        while !reader.is_empty() {
            list.push(self.value(field.ty, wire, &mut reader, place)?);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        field: &Field,
        bytes: &[u8],
        place: MessagePosition,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            match number {
                1 => key = place.text(place.bytes(&mut reader, wire)?)?,
                2 => {
                    let read = self.descend(|this| this.value(field.ty, wire, &mut reader, place));
                    value = Some(read?);
                }
                _ => reader.skip(wire)?,
            }
        }
        let map = into.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(map) = map else {
            unreachable!("a field is a map or it is not");
        };
        map.insert(key, value.unwrap_or_else(|| zero(field.ty)));
        Ok(())
    }

    pub(super) fn value(
        &mut self,
        ty: Ty,
        wire: Wire,
        reader: &mut Reader<'_>,
        place: MessagePosition,
    ) -> Result<Value, DecodeError> {
        self.spend()?;
        match ty {
            // The low 32 bits are the number: negative ones are sent as ten bytes.
            Ty::Int32 => Ok((place.varint(reader, wire)?.cast_signed() as i32).into()),
            Ty::Int64 => Ok(place.varint(reader, wire)?.cast_signed().into()),
            Ty::Bool => Ok((place.varint(reader, wire)? != 0).into()),
            Ty::Double if wire == Wire::Fixed64 => {
                Ok(double(f64::from_le_bytes(reader.fixed64()?)))
            }
            Ty::Double => Err(place.wire_type()),
            Ty::String => Ok(place.text(place.bytes(reader, wire)?)?.into()),
            Ty::Bytes => Ok(STANDARD.encode(place.bytes(reader, wire)?).into()),
            Ty::Message(slot) => {
                let bytes = place.bytes(reader, wire)?;
                Ok(Value::Object(self.object(slot, bytes)?))
            }
            special => self.special(special, place.bytes(reader, wire)?, place),
        }
    }

    fn spend(&mut self) -> Result<(), DecodeError> {
        self.left = self.left.checked_sub(1).ok_or(DecodeError::TooMany)?;
        Ok(())
    }

    pub(super) fn descend<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.depth == DEPTH {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }
}

/// The message and field of a value: for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessagePosition {
    pub(super) message: &'static str,
    pub(super) field: &'static str,
}

impl MessagePosition {
    fn wire_type(self) -> DecodeError {
        DecodeError::WireType { message: self.message, field: self.field }
    }

    pub(super) fn bytes<'a>(
        self,
        reader: &mut Reader<'a>,
        wire: Wire,
    ) -> Result<&'a [u8], DecodeError> {
        if wire == Wire::Bytes { reader.bytes() } else { Err(self.wire_type()) }
    }

    pub(super) fn varint(self, reader: &mut Reader<'_>, wire: Wire) -> Result<u64, DecodeError> {
        if wire == Wire::Varint { reader.varint() } else { Err(self.wire_type()) }
    }

    pub(super) fn text(self, bytes: &[u8]) -> Result<String, DecodeError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(DecodeError::Utf8 { message: self.message, field: self.field }),
        }
    }
}

/// Go prints a whole float without a fraction, and readers take it for an integer.
fn double(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return (value as i64).into();
    }
    value.into()
}
