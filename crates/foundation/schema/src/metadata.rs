//! `apiVersion`, `kind` and `metadata`, of an object and of the resources embedded in it.
//!
//! No schema describes ObjectMeta in a CustomResourceDefinition; the server does. This
//! module reads metadata as a Go client's struct would: unknown fields and empty ones go,
//! a wrong type is an error or, for objects already stored, drops that field.

use serde_json::{Map, Value};

use crate::field::{FieldError, Path};
use crate::node::SchemaNode;
use crate::prune::ObjectLevel;

/// The treatment of a metadata field of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Report it: the object comes from a client.
    Refuse,
    /// Drop it: the object comes from the store and must stay readable.
    Drop,
}

/// Brings metadata into shape, in embedded resources and, for [`Level::Root`], at the
/// root. Returns the paths of unknown fields that were dropped, sorted.
pub fn coerce_metadata(
    value: &mut Value,
    schema: &SchemaNode,
    level: ObjectLevel,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    coerce_at(value, schema, level, malformed, &Path::Root)
}

/// [`coerce_metadata`] for a value at `at` in its object.
pub(crate) fn coerce_at(
    value: &mut Value,
    schema: &SchemaNode,
    level: ObjectLevel,
    malformed: Malformed,
    at: &Path<'_>,
) -> Result<Vec<String>, FieldError> {
    let mut coercer = Coercer { malformed, unknown: Vec::new() };
    let resource = schema.embedded || level == ObjectLevel::Root;
    coercer.coerce(value, schema, resource, at)?;
    coercer.unknown.sort();
    Ok(coercer.unknown)
}

struct Coercer {
    malformed: Malformed,
    unknown: Vec<String>,
}

impl Coercer {
    fn coerce(
        &mut self,
        value: &mut Value,
        node: &SchemaNode,
        resource: bool,
        at: &Path<'_>,
    ) -> Result<(), FieldError> {
        match value {
            Value::Object(map) => {
                if resource {
                    self.resource(map, at)?;
                }
                for (name, value) in map {
                    if let Some(schema) = node.property(name) {
                        self.coerce(value, schema, schema.embedded, &at.field(name))?;
                    } else if let Some(schema) = node.field(name) {
                        self.coerce(value, schema, schema.embedded, &at.key(name))?;
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &node.items else { return Ok(()) };
                for (index, item) in list.iter_mut().enumerate() {
                    self.coerce(item, items, items.embedded, &at.index(index))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn resource(&mut self, map: &mut Map<String, Value>, at: &Path<'_>) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            match map.get(name) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.malformed == Malformed::Drop => {
                    map.remove(name);
                }
                Some(other) => {
                    let other = other.clone();
                    return Err(FieldError::invalid(at.field(name), other, "must be a string"));
                }
            }
        }
        let Some(metadata) = map.get_mut("metadata") else { return Ok(()) };
        let at = at.field("metadata");
        match read(metadata, self.malformed, &at.to_string()) {
            Ok(meta) => {
                *metadata = Value::Object(meta.fields);
                self.unknown.extend(meta.unknown);
                Ok(())
            }
            Err(_) if self.malformed == Malformed::Drop => Ok(()),
            Err(error) => Err(FieldError::invalid(at, metadata.clone(), error.to_string())),
        }
    }
}

/// Why metadata does not decode, in the words of Go's decoder.
#[derive(Debug, thiserror::Error)]
#[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
pub(crate) struct MetadataError {
    found: &'static str,
    place: String,
    wanted: &'static str,
}

/// Metadata as read: known, non-empty fields, and the paths of unknown ones.
pub(crate) struct Meta {
    pub(crate) fields: Map<String, Value>,
    pub(crate) unknown: Vec<String>,
}

pub(crate) fn read(value: &Value, malformed: Malformed, at: &str) -> Result<Meta, MetadataError> {
    let mut meta = Meta { fields: Map::new(), unknown: Vec::new() };
    let map = match value {
        Value::Null => return Ok(meta),
        Value::Object(map) => map,
        other => {
            return Err(MetadataError {
                found: found(other),
                place: "value".to_owned(),
                wanted: "v1.ObjectMeta",
            });
        }
    };
    for (name, value) in map {
        let at = format!("{at}.{name}");
        let Some((_, shape)) = OBJECT_META.iter().find(|(known, _)| known == name) else {
            meta.unknown.push(at);
            continue;
        };
        match decode(value, shape, name, &at, &mut meta.unknown) {
            Ok(Some(value)) => {
                meta.fields.insert(name.clone(), value);
            }
            Ok(None) => {}
            Err(_) if malformed == Malformed::Drop => {}
            Err(error) => return Err(error),
        }
    }
    Ok(meta)
}

/// The Go type of a field.
enum Shape {
    Text,
    Integer,
    /// A pointer: zero is a value.
    OptionalInteger,
    OptionalBool,
    Time,
    Raw,
    TextMap,
    TextList,
    Structs(&'static [(&'static str, Shape)]),
}

static OBJECT_META: &[(&str, Shape)] = &[
    ("name", Shape::Text),
    ("generateName", Shape::Text),
    ("namespace", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
    ("resourceVersion", Shape::Text),
    ("generation", Shape::Integer),
    ("creationTimestamp", Shape::Time),
    ("deletionTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::OptionalInteger),
    ("labels", Shape::TextMap),
    ("annotations", Shape::TextMap),
    ("ownerReferences", Shape::Structs(OWNER_REFERENCE)),
    ("finalizers", Shape::TextList),
    ("managedFields", Shape::Structs(MANAGED_FIELDS)),
];

static OWNER_REFERENCE: &[(&str, Shape)] = &[
    // These four are written even when empty, which the reader below keeps as it found.
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("name", Shape::Text),
    ("uid", Shape::Text),
    ("controller", Shape::OptionalBool),
    ("blockOwnerDeletion", Shape::OptionalBool),
];

static MANAGED_FIELDS: &[(&str, Shape)] = &[
    ("manager", Shape::Text),
    ("operation", Shape::Text),
    ("apiVersion", Shape::Text),
    ("time", Shape::Time),
    ("fieldsType", Shape::Text),
    ("fieldsV1", Shape::Raw),
    ("subresource", Shape::Text),
];

/// The value as it would be written back; `None` for what is left out when empty.
fn decode(
    value: &Value,
    shape: &Shape,
    name: &str,
    at: &str,
    unknown: &mut Vec<String>,
) -> Result<Option<Value>, MetadataError> {
    let error = |found, wanted| MetadataError {
        found,
        place: format!("struct field ObjectMeta.{name}"),
        wanted,
    };
    Ok(match (shape, value) {
        (_, Value::Null) => None,
        (Shape::Text, Value::String(text)) => {
            Some(text.as_str().into()).filter(|_| !text.is_empty())
        }
        (Shape::Text, other) => return Err(error(found(other), "string")),
        (Shape::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => {
            Some(value.clone()).filter(|_| number.as_i64() != Some(0))
        }
        (Shape::OptionalInteger, Value::Number(number)) if number.is_i64() => Some(value.clone()),
        (Shape::Integer | Shape::OptionalInteger, other) => {
            return Err(error(found(other), "int64"));
        }
        (Shape::OptionalBool, Value::Bool(_)) => Some(value.clone()),
        (Shape::OptionalBool, other) => return Err(error(found(other), "bool")),
        (Shape::Time, Value::String(text)) if crate::validate::format::is_time(text) => {
            Some(value.clone())
        }
        (Shape::Time, other) => return Err(error(found(other), "v1.Time")),
        (Shape::Raw, other) => Some(other.clone()),
        (Shape::TextMap, Value::Object(map)) => {
            let mut texts = Map::new();
            for (key, value) in map {
                let text = match value {
                    Value::Null => "",
                    Value::String(text) => text,
                    other => return Err(error(found(other), "string")),
                };
                texts.insert(key.clone(), text.into());
            }
            Some(Value::Object(texts)).filter(|_| !map.is_empty())
        }
        (Shape::TextMap, other) => return Err(error(found(other), "map[string]string")),
        (Shape::TextList, Value::Array(list)) => {
            if let Some(other) = list.iter().find(|entry| !entry.is_string()) {
                return Err(error(found(other), "string"));
            }
            Some(value.clone()).filter(|_| !list.is_empty())
        }
        (Shape::TextList, other) => return Err(error(found(other), "[]string")),
        (Shape::Structs(shapes), Value::Array(list)) => {
            let mut structs = Vec::with_capacity(list.len());
            for (index, value) in list.iter().enumerate() {
                let at = format!("{at}[{index}]");
                structs.push(decode_struct(value, shapes, name, &at, unknown)?);
            }
            Some(Value::Array(structs)).filter(|_| !list.is_empty())
        }
        (Shape::Structs(_), other) => return Err(error(found(other), "[]struct")),
    })
}

fn decode_struct(
    value: &Value,
    shapes: &[(&str, Shape)],
    name: &str,
    at: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, MetadataError> {
    let Value::Object(map) = value else {
        return Err(MetadataError {
            found: found(value),
            place: format!("struct field ObjectMeta.{name}"),
            wanted: "struct",
        });
    };
    let mut fields = Map::new();
    for (key, value) in map {
        let at = format!("{at}.{key}");
        match shapes.iter().find(|(known, _)| known == key) {
            Some((_, Shape::Text)) if value == "" => {
                fields.insert(key.clone(), value.clone());
            }
            Some((_, shape)) => {
                if let Some(value) = decode(value, shape, &format!("{name}.{key}"), &at, unknown)? {
                    fields.insert(key.clone(), value);
                }
            }
            None => unknown.push(at),
        }
    }
    Ok(Value::Object(fields))
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
