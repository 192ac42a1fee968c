//! The protobuf form of the version 2 document: `openapi.v2.Document` of gnostic.
//! kubectl 1.27 and 1.28 and Argo CD read nothing else.
//!
//! A generic encoder: for each message a table says which JSON key becomes which field,
//! and how. Keys that a table does not name are left out, except `x-…`, which become
//! vendor extensions.

use serde_json::{Map, Value};

/// Encodes a version 2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&DOCUMENT, document, &mut out);
    out
}

/// One message: its fields by JSON key, and where vendor extensions go.
struct Message {
    fields: &'static [(&'static str, u64, As)],
    extensions: Option<u64>,
}

/// How a JSON value becomes a field.
#[derive(Clone, Copy)]
enum As {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// Any JSON, as text that a YAML reader understands.
    Any,
    Anys,
    One(&'static Message),
    Many(&'static Message),
    /// A message of named entries, each with a value of this sort.
    Named(&'static As),
    Paths,
    Responses,
    Parameters,
    /// `additionalProperties`: a schema or a boolean.
    SchemaOrFlag,
    /// `items`: one schema, or several.
    Items,
    /// `type`: one name, or several.
    Types,
    /// A response's schema, one level deeper than elsewhere.
    Wrapped(&'static Message),
    SecurityRequirements,
    SecurityDefinition,
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, As::Text),
        ("info", 2, As::One(&INFO)),
        ("host", 3, As::Text),
        ("basePath", 4, As::Text),
        ("schemes", 5, As::Texts),
        ("consumes", 6, As::Texts),
        ("produces", 7, As::Texts),
        ("paths", 8, As::Paths),
        ("definitions", 9, As::Named(&As::One(&SCHEMA))),
        ("security", 12, As::SecurityRequirements),
        ("securityDefinitions", 13, As::Named(&As::SecurityDefinition)),
    ],
    extensions: Some(16),
};

static INFO: Message = Message {
    fields: &[("title", 1, As::Text), ("version", 2, As::Text), ("description", 3, As::Text)],
    extensions: Some(7),
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("$ref", 1, As::Text),
        ("get", 2, As::One(&OPERATION)),
        ("put", 3, As::One(&OPERATION)),
        ("post", 4, As::One(&OPERATION)),
        ("delete", 5, As::One(&OPERATION)),
        ("options", 6, As::One(&OPERATION)),
        ("head", 7, As::One(&OPERATION)),
        ("patch", 8, As::One(&OPERATION)),
        ("parameters", 9, As::Parameters),
    ],
    extensions: Some(10),
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, As::Texts),
        ("summary", 2, As::Text),
        ("description", 3, As::Text),
        ("operationId", 5, As::Text),
        ("produces", 6, As::Texts),
        ("consumes", 7, As::Texts),
        ("parameters", 8, As::Parameters),
        ("responses", 9, As::Responses),
        ("schemes", 10, As::Texts),
        ("deprecated", 11, As::Flag),
    ],
    extensions: Some(13),
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, As::Text), ("schema", 2, As::Wrapped(&SCHEMA))],
    extensions: Some(5),
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, As::Text),
        ("name", 2, As::Text),
        ("in", 3, As::Text),
        ("required", 4, As::Flag),
        ("schema", 5, As::One(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("allowEmptyValue", 5, As::Flag),
        ("type", 6, As::Text),
        ("format", 7, As::Text),
        ("uniqueItems", 20, As::Flag),
    ],
    extensions: Some(23),
};

/// Of headers and of paths: the two have the same fields.
static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("type", 5, As::Text),
        ("format", 6, As::Text),
        ("uniqueItems", 19, As::Flag),
    ],
    extensions: Some(22),
};

static REFERENCE: Message =
    Message { fields: &[("$ref", 1, As::Text), ("description", 2, As::Text)], extensions: None };

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, As::Text),
        ("name", 2, As::Text),
        ("in", 3, As::Text),
        ("description", 4, As::Text),
    ],
    extensions: Some(5),
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, As::Text),
        ("format", 2, As::Text),
        ("title", 3, As::Text),
        ("description", 4, As::Text),
        ("default", 5, As::Any),
        ("multipleOf", 6, As::Double),
        ("maximum", 7, As::Double),
        ("exclusiveMaximum", 8, As::Flag),
        ("minimum", 9, As::Double),
        ("exclusiveMinimum", 10, As::Flag),
        ("maxLength", 11, As::Integer),
        ("minLength", 12, As::Integer),
        ("pattern", 13, As::Text),
        ("maxItems", 14, As::Integer),
        ("minItems", 15, As::Integer),
        ("uniqueItems", 16, As::Flag),
        ("maxProperties", 17, As::Integer),
        ("minProperties", 18, As::Integer),
        ("required", 19, As::Texts),
        ("enum", 20, As::Anys),
        ("additionalProperties", 21, As::SchemaOrFlag),
        ("type", 22, As::Types),
        ("items", 23, As::Items),
        ("allOf", 24, As::Many(&SCHEMA)),
        ("properties", 25, As::Named(&As::One(&SCHEMA))),
        ("readOnly", 27, As::Flag),
        ("example", 30, As::Any),
    ],
    extensions: Some(31),
};

fn message(shape: &Message, value: &Value, out: &mut Vec<u8>) {
    let Value::Object(object) = value else { return };
    for (key, number, how) in shape.fields {
        if let Some(value) = object.get(*key) {
            field(*number, *how, value, out);
        }
    }
    if let Some(number) = shape.extensions {
        for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
            nested(number, out, |out| named(name, As::Any, value, out));
        }
    }
}

fn field(number: u64, how: As, value: &Value, out: &mut Vec<u8>) {
    match (how, value) {
        (As::Text, Value::String(text)) => put_text(number, text, out),
        (As::Texts, Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).for_each(|text| put_text(number, text, out));
        }
        (As::Flag, Value::Bool(true)) => {
            put_varint(number << 3, out);
            put_varint(1, out);
        }
        (As::Integer, Value::Number(integer)) => {
            put_varint(number << 3, out);
            put_varint(integer.as_i64().unwrap_or_default().cast_unsigned(), out);
        }
        (As::Double, Value::Number(double)) => {
            put_varint(number << 3 | 1, out);
            out.extend(double.as_f64().unwrap_or_default().to_le_bytes());
        }
        (As::Any, value) => nested(number, out, |out| put_text(2, &value.to_string(), out)),
        (As::Anys, Value::Array(values)) => {
            values.iter().for_each(|value| field(number, As::Any, value, out));
        }
        (As::One(shape), value) => nested(number, out, |out| message(shape, value, out)),
        (As::Many(shape), Value::Array(values)) => {
            values.iter().for_each(|value| field(number, As::One(shape), value, out));
        }
        (As::Named(how), Value::Object(entries)) => {
            nested(number, out, |out| put_entries(1, entries, *how, out));
        }
        (As::Paths, Value::Object(entries)) => {
            nested(number, out, |out| put_entries(2, entries, As::One(&PATH_ITEM), out));
        }
        (As::Responses, Value::Object(entries)) => {
            // A response may also be a reference: one level for the choice.
            nested(number, out, |out| put_entries(1, entries, As::Wrapped(&RESPONSE), out));
        }
        (As::Parameters, Value::Array(values)) => {
            values.iter().for_each(|value| nested(number, out, |out| parameter(value, out)));
        }
        (As::SchemaOrFlag, Value::Bool(allowed)) => nested(number, out, |out| {
            put_varint(2 << 3, out);
            put_varint(u64::from(*allowed), out);
        }),
        (As::SchemaOrFlag | As::Items, Value::Object(_)) | (As::Wrapped(_), Value::Object(_)) => {
            let shape = if let As::Wrapped(shape) = how { shape } else { &SCHEMA };
            nested(number, out, |out| field(1, As::One(shape), value, out));
        }
        (As::Items, Value::Array(_)) => {
            nested(number, out, |out| field(1, As::Many(&SCHEMA), value, out));
        }
        (As::Types, Value::String(ty)) => nested(number, out, |out| put_text(1, ty, out)),
        (As::Types, Value::Array(_)) => nested(number, out, |out| field(1, As::Texts, value, out)),
        (As::SecurityRequirements, Value::Array(values)) => {
            for entries in values.iter().filter_map(Value::as_object) {
                nested(number, out, |out| {
                    for (name, scopes) in entries {
                        nested(1, out, |out| {
                            put_text(1, name, out);
                            nested(2, out, |out| field(1, As::Texts, scopes, out));
                        });
                    }
                });
            }
        }
        (As::SecurityDefinition, Value::Object(_)) => {
            nested(number, out, |out| field(2, As::One(&API_KEY), value, out));
        }
        // A value of the wrong form says nothing that could be encoded.
        _ => {}
    }
}

/// A parameter is a reference, a body, or something in the query or the path.
fn parameter(value: &Value, out: &mut Vec<u8>) {
    if value.get("$ref").is_some() {
        return field(2, As::One(&REFERENCE), value, out);
    }
    let place = value.get("in").and_then(Value::as_str).unwrap_or_default();
    nested(1, out, |out| match place {
        "body" => field(1, As::One(&BODY_PARAMETER), value, out),
        "path" => nested(2, out, |out| field(4, As::One(&PATH_PARAMETER), value, out)),
        "header" => nested(2, out, |out| field(1, As::One(&PATH_PARAMETER), value, out)),
        _ => nested(2, out, |out| field(3, As::One(&QUERY_PARAMETER), value, out)),
    });
}

fn put_entries(number: u64, entries: &Map<String, Value>, how: As, out: &mut Vec<u8>) {
    for (name, value) in entries {
        nested(number, out, |out| named(name, how, value, out));
    }
}

fn named(name: &str, how: As, value: &Value, out: &mut Vec<u8>) {
    put_text(1, name, out);
    field(2, how, value, out);
}

fn put_text(number: u64, text: &str, out: &mut Vec<u8>) {
    put_varint(number << 3 | 2, out);
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a length-delimited value whose length is known only once it is written.
fn nested(number: u64, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    put_varint(number << 3 | 2, out);
    let start = out.len();
    body(out);
    let mut length = Vec::with_capacity(5);
    put_varint((out.len() - start) as u64, &mut length);
    out.splice(start..start, length);
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_document_has_the_bytes_of_its_messages() {
        let document = json!({
            "swagger": "2.0",
            "definitions": {"A": {"type": "object", "properties": {"b": {"$ref": "#/x"}}, "x-k": [1]}},
        });
        // Document: swagger, definitions > entry > name, schema > type, properties > entry,
        // vendor extension > name, value > yaml.
        let expected: &[u8] = b"\x0a\x032.0\
            \x4a\x30\x0a\x2e\x0a\x01A\x12\x29\
            \xb2\x01\x08\x0a\x06object\
            \xca\x01\x0c\x0a\x0a\x0a\x01b\x12\x05\x0a\x03#/x\
            \xfa\x01\x0c\x0a\x03x-k\x12\x05\x12\x03[1]";
        let bytes = encode(&document);
        assert_eq!(bytes, expected, "{bytes:02x?}");
    }

    #[test]
    fn parameters_and_responses_stand_behind_their_choices() {
        let document = json!({"paths": {"/p": {"parameters": [
            {"in": "path", "name": "n"}, {"in": "query", "name": "q"}, {"in": "body", "name": "b"},
            {"$ref": "#/r"},
        ], "get": {"responses": {"200": {"description": "d"}}}}}});
        let bytes = encode(&document);
        let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(holds(b"\x4a\x0f\x0a\x0d\x12\x0b\x22\x09\x12\x04path\x22\x01n"), "{bytes:02x?}");
        assert!(holds(b"\x4a\x10\x0a\x0e\x12\x0c\x1a\x0a\x12\x05query\x22\x01q"));
        assert!(holds(b"\x4a\x0d\x0a\x0b\x0a\x09\x12\x01b\x1a\x04body"));
        assert!(holds(b"\x4a\x07\x12\x05\x0a\x03#/r"));
        assert!(holds(b"\x4a\x0e\x0a\x0c\x0a\x03200\x12\x05\x0a\x03\x0a\x01d"));
    }
}
