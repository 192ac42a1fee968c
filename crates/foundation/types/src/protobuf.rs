//! Kubernetes' protobuf encoding of the built-in types, to and from JSON values.
//!
//! A body is the magic `k8s\0` followed by a `runtime.Unknown`: the object's apiVersion and kind,
//! and the message itself. The fields of a message are looked up in the [table](crate::table); no
//! code is generated. A decoded object equals the output of upstream's JSON encoder for the
//! same object, except that `null`s are left out.
//!
//! Input is not trusted: nesting and the number of values are bounded, and malformed
//! bytes are an error.

mod decode;
mod encode;
mod reader;
mod special;

use serde_json::Value;

use self::reader::{Reader, Wire, put_bytes, put_nested};
use crate::Kind;

pub(crate) use self::decode::decode_message;
pub(crate) use self::encode::encode_message;

/// The first bytes of a protobuf body.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Why bytes could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoMagic,
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("the contents are encoded as {encoding:?}, which is not supported")]
    Encoding { encoding: String },
    #[error("unexpected EOF")]
    Truncated,
    #[error("malformed protobuf: varint longer than 10 bytes")]
    BadVarint,
    #[error("malformed protobuf: illegal tag")]
    BadKey,
    #[error("wrong wire type for field {message}.{field}")]
    WireType { message: &'static str, field: &'static str },
    #[error("field {message}.{field} is not valid UTF-8")]
    Utf8 { message: &'static str, field: &'static str },
    #[error("field {message}.{field} holds no valid {ty}")]
    Special { message: &'static str, field: &'static str, ty: &'static str },
    #[error("the object is nested too deeply")]
    TooDeep,
    #[error("the object has too many values for its size")]
    TooMany,
}

/// Why a value could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("the object has no apiVersion or kind")]
    NoKind,
    #[error("{kind} of {api_version:?} has no protobuf encoding")]
    UnknownKind { api_version: String, kind: String },
    #[error("field {message}.{field} must be {expected}")]
    Type { message: &'static str, field: &'static str, expected: &'static str },
    #[error("the object is nested too deeply")]
    TooDeep,
}

/// A protobuf body with its outer layer taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Envelope<'a> {
    /// May be empty: then the endpoint decides.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The message; JSON text if `content_type` says so.
    pub raw: &'a [u8],
    pub content_encoding: &'a str,
    /// Empty for protobuf.
    pub content_type: &'a str,
}

impl<'a> Envelope<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let body = bytes.strip_prefix(&MAGIC).ok_or(DecodeError::NoMagic)?;
        let mut envelope = Self::default();
        let mut reader = Reader::new(body);
        while let Some((number, wire)) = reader.key()? {
            match (number, wire) {
                (1, Wire::Bytes) => envelope.parse_type(reader.bytes()?)?,
                (2, Wire::Bytes) => envelope.raw = reader.bytes()?,
                (3, Wire::Bytes) => {
                    envelope.content_encoding = text(reader.bytes()?, "contentEncoding")?
                }
                (4, Wire::Bytes) => envelope.content_type = text(reader.bytes()?, "contentType")?,
                (1..=4, _) => {
                    return Err(DecodeError::WireType { message: "Unknown", field: "typeMeta" });
                }
                _ => reader.skip(wire)?,
            }
        }
        Ok(envelope)
    }

    fn parse_type(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            match (number, wire) {
                (1, Wire::Bytes) => self.api_version = text(reader.bytes()?, "apiVersion")?,
                (2, Wire::Bytes) => self.kind = text(reader.bytes()?, "kind")?,
                _ => reader.skip(wire)?,
            }
        }
        Ok(())
    }

    /// The kind that the envelope names.
    pub fn kind(&self) -> Result<Kind, DecodeError> {
        Kind::of(self.api_version, self.kind).ok_or_else(|| DecodeError::UnknownKind {
            api_version: self.api_version.to_owned(),
            kind: self.kind.to_owned(),
        })
    }

    /// The object inside, with apiVersion and kind as the envelope names them.
    pub fn decode(&self) -> Result<Value, DecodeError> {
        if !self.content_encoding.is_empty() {
            return Err(DecodeError::Encoding { encoding: self.content_encoding.to_owned() });
        }
        match self.content_type {
            "" | "application/vnd.kubernetes.protobuf" => {
                let mut value = self.kind()?.decode(self.raw)?;
                // Option types are registered in every group: keep the name that was used.
                if let Some(api_version) = value.get_mut("apiVersion") {
                    *api_version = self.api_version.into();
                }
                Ok(value)
            }
            "application/json" => serde_json::from_slice(self.raw)
                .map_err(|_| DecodeError::Special { message: "Unknown", field: "raw", ty: "JSON" }),
            other => Err(DecodeError::Encoding { encoding: other.to_owned() }),
        }
    }
}

/// Decodes a whole body: magic, envelope and object.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    Envelope::parse(bytes)?.decode()
}

/// Decodes a bare message as an object of the given kind.
pub fn decode_as(group: &str, version: &str, kind: &str, raw: &[u8]) -> Result<Value, DecodeError> {
    let found = Kind::find(group, version, kind).ok_or_else(|| DecodeError::UnknownKind {
        api_version: crate::api_version(group, version),
        kind: kind.to_owned(),
    })?;
    found.decode(raw)
}

/// Encodes an object of a built-in kind as a whole body: magic, envelope and object.
pub fn encode(value: &Value) -> Result<Vec<u8>, EncodeError> {
    let name = |field| value.get(field).and_then(Value::as_str).ok_or(EncodeError::NoKind);
    let (api_version, kind) = (name("apiVersion")?, name("kind")?);
    let found = Kind::of(api_version, kind).ok_or_else(|| EncodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })?;
    encode_in(api_version, kind, |out| encode_message(found.slot(), value, out))
}

/// Encodes one event of a watch; see [`encode_watch_frame`].
pub fn encode_watch_event(event: &str, object: &Value) -> Result<Vec<u8>, EncodeError> {
    Ok(encode_watch_frame(event, &encode(object)?))
}

/// Encodes one event of a watch around an encoded object: a frame of four bytes of length (big endian) and a
/// bare `WatchEvent` whose object is a whole body.
pub fn encode_watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    put_bytes(&mut out, 1, event.as_bytes());
    let written: Result<(), EncodeError> = put_nested(&mut out, 2, |out| {
        put_bytes(out, 1, object);
        Ok(())
    });
    debug_assert!(written.is_ok(), "nothing in an event can fail to be written");
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn encode_in(
    api_version: &str,
    kind: &str,
    raw: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = MAGIC.to_vec();
    put_nested(&mut out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
        Ok(())
    })?;
    put_nested(&mut out, 2, raw)?;
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Ok(out)
}

fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8 { message: "Unknown", field })
}

#[cfg(test)]
mod tests;
