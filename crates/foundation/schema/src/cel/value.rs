//! Values of expressions. JSON stays where it is and is seen through its schema:
//! names, types and formats come from there.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use kube_cel::cel;
use serde_json::{Map, Value};

use super::inquiry::{self, AuthorizerVerdict, Inquiry};
use super::library;
use super::message::CelMessage;
use crate::node::{Additional, Schema, SchemaNode, Type};

#[derive(Debug, Clone)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Rc<[u8]>),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<BTreeMap<MapKey, Val<'a>>>),
    /// A JSON list, and the schema of the list.
    Array(&'a [Value], Option<&'a SchemaNode>),
    /// A JSON object whose fields a schema names. As a resource it has metadata, too.
    Object(&'a Map<String, Value>, &'a SchemaNode, ResourceValue),
    /// A JSON object with free keys, and the schema of its values.
    Entries(&'a Map<String, Value>, Option<&'a SchemaNode>),
    Optional(Option<Rc<Val<'a>>>),
    /// An object that an expression constructs by the name of its type.
    Message(Rc<CelMessage<'a>>),
    /// A question about rights, and the answer to one.
    Inquiry(Rc<Inquiry>),
    Verdict(Rc<AuthorizerVerdict>),
    /// A name of a type.
    Type(&'static str),
    /// A value that only the libraries understand: times, quantities, addresses.
    Foreign(cel::Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceValue {
    Yes,
    No,
}

/// A key of a map made by an expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MapKey {
    Bool(bool),
    Int(i64),
    Text(Rc<str>),
}

#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// The metadata fields that rules can access.
pub(super) static METADATA: LazyLock<Schema> = LazyLock::new(|| {
    let text = Arc::new(SchemaNode { ty: Type::String, ..SchemaNode::default() });
    Arc::new(SchemaNode {
        ty: Type::Object,
        properties: [("generateName".into(), Arc::clone(&text)), ("name".into(), text)].into(),
        ..SchemaNode::default()
    })
});

/// `apiVersion` and `kind`.
pub(super) static TEXT: LazyLock<Schema> =
    LazyLock::new(|| Arc::new(SchemaNode { ty: Type::String, ..SchemaNode::default() }));

/// The schema of a field of an object that is possibly a resource.
pub(super) fn field_schema<'a>(
    node: &'a SchemaNode,
    resource: ResourceValue,
    name: &str,
) -> Option<&'a SchemaNode> {
    if resource == ResourceValue::Yes {
        match name {
            "apiVersion" | "kind" => return Some(&TEXT),
            "metadata" => {
                let declared = node.property(name);
                let complete = declared.filter(|metadata| metadata.properties.len() >= 2);
                return Some(complete.map_or(&**METADATA, |metadata| metadata));
            }
            _ => {}
        }
    }
    node.property(name).map(|schema| &**schema)
}

impl<'a> Val<'a> {
    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Owned(text.into()))
    }

    /// A JSON value through its schema; without one, as it is.
    pub(super) fn view(
        value: &'a Value,
        node: Option<&'a SchemaNode>,
        resource: ResourceValue,
    ) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => {
                let double = node.is_some_and(|node| node.ty == Type::Number);
                let integer = node.is_some_and(|node| node.ty == Type::Integer);
                match (number.as_i64(), number.as_f64().unwrap_or_default()) {
                    (Some(value), _) if !double => Self::Int(value),
                    (None, value) if integer => Self::Int(value as i64),
                    (_, value) => Self::Double(value),
                }
            }
            Value::String(text) => Self::view_text(text, node),
            Value::Array(list) => Self::Array(list, node),
            Value::Object(map) => match node {
                None => Self::Entries(map, None),
                Some(node) => match &node.additional {
                    Additional::Of(values) => Self::Entries(map, Some(values)),
                    Additional::Anything => Self::Entries(map, None),
                    Additional::Closed => {
                        let embedded = node.embedded || resource == ResourceValue::Yes;
                        let resource =
                            if embedded { ResourceValue::Yes } else { ResourceValue::No };
                        Self::Object(map, node, resource)
                    }
                },
            },
        }
    }

    fn view_text(text: &'a str, node: Option<&'a SchemaNode>) -> Self {
        let plain = Self::Text(Text::Borrowed(text));
        let Some(node) = node.filter(|node| node.ty == Type::String) else { return plain };
        let format = node.validation.as_ref().and_then(|validation| validation.format.as_deref());
        let convert = |function: &str, text: &Self| {
            library::call(function, None, std::slice::from_ref(text)).ok()
        };
        let converted = match format {
            Some("date-time") => convert("timestamp", &plain),
            Some("date") => convert("timestamp", &Self::text(format!("{text}T00:00:00Z"))),
            Some("duration") => convert("duration", &plain),
            Some("byte") => convert("base64.decode", &plain),
            _ => None,
        };
        converted.unwrap_or(plain)
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Array(..) => "list",
            Self::Map(_) | Self::Entries(..) => "map",
            Self::Object(..) => "object",
            Self::Optional(_) => "optional_type",
            Self::Message(message) if message.name == "JSONPatch" => "JSONPatch",
            Self::Message(_) => "Object",
            Self::Inquiry(inquiry) => inquiry::type_name(inquiry),
            Self::Verdict(_) => inquiry::DECISION,
            Self::Type(_) => "type",
            Self::Foreign(cel::Value::Timestamp(_)) => "google.protobuf.Timestamp",
            Self::Foreign(cel::Value::Duration(_)) => "google.protobuf.Duration",
            Self::Foreign(_) => "object",
        }
    }

    /// How many parts a value has: characters, items or entries.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Text(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Array(list, _) => list.len(),
            Self::Map(map) => map.len(),
            Self::Entries(map, _) => map.len(),
            Self::Object(map, node, resource) => {
                map.keys().filter(|name| field_schema(node, *resource, name).is_some()).count()
            }
            _ => return None,
        })
    }

    /// The cost of reading the whole value once, in steps; counting stops at `most`.
    pub(super) fn weight(&self, most: u64) -> u64 {
        let sum = |parts: &mut dyn Iterator<Item = Val<'a>>| {
            let mut total = 1;
            for part in parts {
                if total >= most {
                    break;
                }
                total += part.weight(most - total);
            }
            total
        };
        match self {
            Self::Text(text) => 1 + text.len() as u64 / 10,
            Self::Bytes(bytes) => 1 + bytes.len() as u64 / 10,
            Self::List(list) => sum(&mut list.iter().cloned()),
            Self::Map(map) => sum(&mut map.values().cloned()),
            Self::Message(message) => sum(&mut message.fields.values().cloned()),
            Self::Array(list, _) => json_weight_list(list, most),
            Self::Object(map, ..) | Self::Entries(map, _) => json_weight_map(map, most),
            _ => 1,
        }
    }
}

fn json_weight(value: &Value, most: u64) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 10,
        Value::Array(list) => json_weight_list(list, most),
        Value::Object(map) => json_weight_map(map, most),
        _ => 1,
    }
}

fn json_weight_list(list: &[Value], most: u64) -> u64 {
    let mut total = 1;
    for value in list {
        if total >= most {
            break;
        }
        total += json_weight(value, most - total);
    }
    total
}

fn json_weight_map(map: &Map<String, Value>, most: u64) -> u64 {
    let mut total = 1;
    for value in map.values() {
        if total >= most {
            break;
        }
        total += 1 + json_weight(value, most - total);
    }
    total
}
