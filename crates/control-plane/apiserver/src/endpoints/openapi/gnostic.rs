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
struct GnosticMessage {
    fields: &'static [(&'static str, u64, FieldMapping)],
    extensions: Option<u64>,
}

/// How a JSON value becomes a field.
#[derive(Clone, Copy)]
enum FieldMapping {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// Any JSON, as text that a YAML reader understands.
    Any,
    Anys,
    One(&'static GnosticMessage),
    Many(&'static GnosticMessage),
    /// A message of named entries, each with a value of this sort.
    Named(&'static FieldMapping),
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
    Wrapped(&'static GnosticMessage),
    SecurityRequirements,
    SecurityDefinition,
}

static DOCUMENT: GnosticMessage = GnosticMessage {
    fields: &[
        ("swagger", 1, FieldMapping::Text),
        ("info", 2, FieldMapping::One(&INFO)),
        ("host", 3, FieldMapping::Text),
        ("basePath", 4, FieldMapping::Text),
        ("schemes", 5, FieldMapping::Texts),
        ("consumes", 6, FieldMapping::Texts),
        ("produces", 7, FieldMapping::Texts),
        ("paths", 8, FieldMapping::Paths),
        ("definitions", 9, FieldMapping::Named(&FieldMapping::One(&SCHEMA))),
        ("security", 12, FieldMapping::SecurityRequirements),
        ("securityDefinitions", 13, FieldMapping::Named(&FieldMapping::SecurityDefinition)),
    ],
    extensions: Some(16),
};

static INFO: GnosticMessage = GnosticMessage {
    fields: &[
        ("title", 1, FieldMapping::Text),
        ("version", 2, FieldMapping::Text),
        ("description", 3, FieldMapping::Text),
    ],
    extensions: Some(7),
};

static PATH_ITEM: GnosticMessage = GnosticMessage {
    fields: &[
        ("$ref", 1, FieldMapping::Text),
        ("get", 2, FieldMapping::One(&OPERATION)),
        ("put", 3, FieldMapping::One(&OPERATION)),
        ("post", 4, FieldMapping::One(&OPERATION)),
        ("delete", 5, FieldMapping::One(&OPERATION)),
        ("options", 6, FieldMapping::One(&OPERATION)),
        ("head", 7, FieldMapping::One(&OPERATION)),
        ("patch", 8, FieldMapping::One(&OPERATION)),
        ("parameters", 9, FieldMapping::Parameters),
    ],
    extensions: Some(10),
};

static OPERATION: GnosticMessage = GnosticMessage {
    fields: &[
        ("tags", 1, FieldMapping::Texts),
        ("summary", 2, FieldMapping::Text),
        ("description", 3, FieldMapping::Text),
        ("operationId", 5, FieldMapping::Text),
        ("produces", 6, FieldMapping::Texts),
        ("consumes", 7, FieldMapping::Texts),
        ("parameters", 8, FieldMapping::Parameters),
        ("responses", 9, FieldMapping::Responses),
        ("schemes", 10, FieldMapping::Texts),
        ("deprecated", 11, FieldMapping::Flag),
    ],
    extensions: Some(13),
};

static RESPONSE: GnosticMessage = GnosticMessage {
    fields: &[
        ("description", 1, FieldMapping::Text),
        ("schema", 2, FieldMapping::Wrapped(&SCHEMA)),
    ],
    extensions: Some(5),
};

static BODY_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("description", 1, FieldMapping::Text),
        ("name", 2, FieldMapping::Text),
        ("in", 3, FieldMapping::Text),
        ("required", 4, FieldMapping::Flag),
        ("schema", 5, FieldMapping::One(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("required", 1, FieldMapping::Flag),
        ("in", 2, FieldMapping::Text),
        ("description", 3, FieldMapping::Text),
        ("name", 4, FieldMapping::Text),
        ("allowEmptyValue", 5, FieldMapping::Flag),
        ("type", 6, FieldMapping::Text),
        ("format", 7, FieldMapping::Text),
        ("uniqueItems", 20, FieldMapping::Flag),
    ],
    extensions: Some(23),
};

/// Of headers and of paths: the two have the same fields.
static PATH_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("required", 1, FieldMapping::Flag),
        ("in", 2, FieldMapping::Text),
        ("description", 3, FieldMapping::Text),
        ("name", 4, FieldMapping::Text),
        ("type", 5, FieldMapping::Text),
        ("format", 6, FieldMapping::Text),
        ("uniqueItems", 19, FieldMapping::Flag),
    ],
    extensions: Some(22),
};

static REFERENCE: GnosticMessage = GnosticMessage {
    fields: &[("$ref", 1, FieldMapping::Text), ("description", 2, FieldMapping::Text)],
    extensions: None,
};

static API_KEY: GnosticMessage = GnosticMessage {
    fields: &[
        ("type", 1, FieldMapping::Text),
        ("name", 2, FieldMapping::Text),
        ("in", 3, FieldMapping::Text),
        ("description", 4, FieldMapping::Text),
    ],
    extensions: Some(5),
};

static SCHEMA: GnosticMessage = GnosticMessage {
    fields: &[
        ("$ref", 1, FieldMapping::Text),
        ("format", 2, FieldMapping::Text),
        ("title", 3, FieldMapping::Text),
        ("description", 4, FieldMapping::Text),
        ("default", 5, FieldMapping::Any),
        ("multipleOf", 6, FieldMapping::Double),
        ("maximum", 7, FieldMapping::Double),
        ("exclusiveMaximum", 8, FieldMapping::Flag),
        ("minimum", 9, FieldMapping::Double),
        ("exclusiveMinimum", 10, FieldMapping::Flag),
        ("maxLength", 11, FieldMapping::Integer),
        ("minLength", 12, FieldMapping::Integer),
        ("pattern", 13, FieldMapping::Text),
        ("maxItems", 14, FieldMapping::Integer),
        ("minItems", 15, FieldMapping::Integer),
        ("uniqueItems", 16, FieldMapping::Flag),
        ("maxProperties", 17, FieldMapping::Integer),
        ("minProperties", 18, FieldMapping::Integer),
        ("required", 19, FieldMapping::Texts),
        ("enum", 20, FieldMapping::Anys),
        ("additionalProperties", 21, FieldMapping::SchemaOrFlag),
        ("type", 22, FieldMapping::Types),
        ("items", 23, FieldMapping::Items),
        ("allOf", 24, FieldMapping::Many(&SCHEMA)),
        ("properties", 25, FieldMapping::Named(&FieldMapping::One(&SCHEMA))),
        ("readOnly", 27, FieldMapping::Flag),
        ("example", 30, FieldMapping::Any),
    ],
    extensions: Some(31),
};

fn message(shape: &GnosticMessage, value: &Value, out: &mut Vec<u8>) {
    let Value::Object(object) = value else { return };
    for (key, number, how) in shape.fields {
        if let Some(value) = object.get(*key) {
            field(*number, *how, value, out);
        }
    }
    if let Some(number) = shape.extensions {
        for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
            nested(number, out, |out| named(name, FieldMapping::Any, value, out));
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a table: one arm for each form of a field")]
fn field(number: u64, how: FieldMapping, value: &Value, out: &mut Vec<u8>) {
    match (how, value) {
        (FieldMapping::Text, Value::String(text)) => put_text(number, text, out),
        (FieldMapping::Texts, Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).for_each(|text| put_text(number, text, out));
        }
        (FieldMapping::Flag, Value::Bool(true)) => {
            put_varint(number << 3, out);
            put_varint(1, out);
        }
        (FieldMapping::Integer, Value::Number(integer)) => {
            put_varint(number << 3, out);
            put_varint(integer.as_i64().unwrap_or_default().cast_unsigned(), out);
        }
        (FieldMapping::Double, Value::Number(double)) => {
            put_varint(number << 3 | 1, out);
            out.extend(double.as_f64().unwrap_or_default().to_le_bytes());
        }
        (FieldMapping::Any, value) => {
            nested(number, out, |out| put_text(2, &value.to_string(), out))
        }
        (FieldMapping::Anys, Value::Array(values)) => {
            values.iter().for_each(|value| field(number, FieldMapping::Any, value, out));
        }
        (FieldMapping::One(shape), value) => nested(number, out, |out| message(shape, value, out)),
        (FieldMapping::Many(shape), Value::Array(values)) => {
            values.iter().for_each(|value| field(number, FieldMapping::One(shape), value, out));
        }
        (FieldMapping::Named(how), Value::Object(entries)) => {
            nested(number, out, |out| put_entries(1, entries, *how, out));
        }
        (FieldMapping::Paths, Value::Object(entries)) => {
            nested(number, out, |out| put_entries(2, entries, FieldMapping::One(&PATH_ITEM), out));
        }
        (FieldMapping::Responses, Value::Object(entries)) => {
            // A response may also be a reference: one level for the choice.
            nested(number, out, |out| {
                put_entries(1, entries, FieldMapping::Wrapped(&RESPONSE), out)
            });
        }
        (FieldMapping::Parameters, Value::Array(values)) => {
            values.iter().for_each(|value| nested(number, out, |out| parameter(value, out)));
        }
        (FieldMapping::SchemaOrFlag, Value::Bool(allowed)) => nested(number, out, |out| {
            put_varint(2 << 3, out);
            put_varint(u64::from(*allowed), out);
        }),
        (FieldMapping::SchemaOrFlag | FieldMapping::Items, Value::Object(_))
        | (FieldMapping::Wrapped(_), Value::Object(_)) => {
            let shape = if let FieldMapping::Wrapped(shape) = how { shape } else { &SCHEMA };
            nested(number, out, |out| field(1, FieldMapping::One(shape), value, out));
        }
        (FieldMapping::Items, Value::Array(_)) => {
            nested(number, out, |out| field(1, FieldMapping::Many(&SCHEMA), value, out));
        }
        (FieldMapping::Types, Value::String(ty)) => nested(number, out, |out| put_text(1, ty, out)),
        (FieldMapping::Types, Value::Array(_)) => {
            nested(number, out, |out| field(1, FieldMapping::Texts, value, out))
        }
        (FieldMapping::SecurityRequirements, Value::Array(values)) => {
            for entries in values.iter().filter_map(Value::as_object) {
                nested(number, out, |out| {
                    for (name, scopes) in entries {
                        nested(1, out, |out| {
                            put_text(1, name, out);
                            nested(2, out, |out| field(1, FieldMapping::Texts, scopes, out));
                        });
                    }
                });
            }
        }
        (FieldMapping::SecurityDefinition, Value::Object(_)) => {
            nested(number, out, |out| field(2, FieldMapping::One(&API_KEY), value, out));
        }
        // A value of the wrong form says nothing that could be encoded.
        _ => {}
    }
}

/// A parameter is a reference, a body, or something in the query or the path.
fn parameter(value: &Value, out: &mut Vec<u8>) {
    if value.get("$ref").is_some() {
        return field(2, FieldMapping::One(&REFERENCE), value, out);
    }
    let place = value.get("in").and_then(Value::as_str).unwrap_or_default();
    nested(1, out, |out| match place {
        "body" => field(1, FieldMapping::One(&BODY_PARAMETER), value, out),
        "path" => nested(2, out, |out| field(4, FieldMapping::One(&PATH_PARAMETER), value, out)),
        "header" => nested(2, out, |out| field(1, FieldMapping::One(&PATH_PARAMETER), value, out)),
        _ => nested(2, out, |out| field(3, FieldMapping::One(&QUERY_PARAMETER), value, out)),
    });
}

fn put_entries(number: u64, entries: &Map<String, Value>, how: FieldMapping, out: &mut Vec<u8>) {
    for (name, value) in entries {
        nested(number, out, |out| named(name, how, value, out));
    }
}

fn named(name: &str, how: FieldMapping, value: &Value, out: &mut Vec<u8>) {
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
