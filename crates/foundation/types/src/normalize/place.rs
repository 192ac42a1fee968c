//! The path of a value, for Go's error texts and for the report of unknown fields.

use std::fmt;

use serde_json::Value;

use super::NormalizeError;
use crate::table::{MessageSlot, Ty};

/// A value's place.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldPosition<'a> {
    /// The innermost struct; `None` for the object itself.
    pub(super) owner: Option<&'static str>,
    pub(super) path: Path<'a>,
}

impl<'a> FieldPosition<'a> {
    pub(super) const ROOT: Self = Self { owner: None, path: Path::Root };

    /// An item of the list at this place.
    pub(super) fn index(&'a self, index: usize) -> Self {
        Self { owner: self.owner, path: Path::Index(&self.path, index) }
    }

    /// A value of the map at this place.
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self { owner: self.owner, path: Path::Key(&self.path, key) }
    }

    pub(super) fn mismatch(&self, found: &Value, expected: &str) -> NormalizeError {
        self.error(json_type(found).to_owned(), expected)
    }

    pub(super) fn error(&self, found: String, expected: &str) -> NormalizeError {
        let expected = expected.to_owned();
        match self.owner {
            Some(owner) => {
                let field = self.path.fields().join(".");
                NormalizeError::Field { found, owner, field, expected }
            }
            None => NormalizeError::Value { found, expected },
        }
    }
}

/// The way from the root to a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    /// With the struct that has the field.
    Field(&'a Path<'a>, &'a str, &'static MessageSlot),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// Go's idea of a path: fields of structs only, but with the names of embedded ones.
    fn fields(&self) -> Vec<&'a str> {
        match self {
            Self::Root => Vec::new(),
            Self::Index(parent, _) | Self::Key(parent, _) => parent.fields(),
            Self::Field(parent, name, slot) => {
                let mut fields = parent.fields();
                embedding(slot, name, &mut fields);
                fields.push(name);
                fields
            }
        }
    }
}

/// Appends the names of the embedded structs in which `slot` has the field `name`.
fn embedding(slot: &'static MessageSlot, name: &str, into: &mut Vec<&str>) {
    for field in &slot.message().fields {
        if let Some(inlined) = field.inlined()
            && inlined.field(name).is_some()
        {
            into.push(inlined.name);
            return embedding(inlined, name, into);
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name, _) | Self::Key(Path::Root, name) => out.write_str(name),
            Self::Field(parent, name, _) | Self::Key(parent, name) => {
                write!(out, "{parent}.{name}")
            }
            Self::Index(parent, index) => write!(out, "{parent}[{index}]"),
        }
    }
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

/// Go's name of a type.
pub(super) fn go_type(ty: Ty) -> String {
    let name = match ty {
        Ty::String => "string",
        Ty::Int32 => "int32",
        Ty::Int64 => "int64",
        Ty::Bool => "bool",
        Ty::Double => "float64",
        Ty::Bytes => "[]uint8",
        Ty::Strings => "[]string",
        Ty::Time => "v1.Time",
        Ty::MicroTime => "v1.MicroTime",
        Ty::Duration => "v1.Duration",
        Ty::Quantity => "resource.Quantity",
        Ty::IntOrString => "intstr.IntOrString",
        Ty::RawExtension => "runtime.RawExtension",
        Ty::FieldsV1 => "v1.FieldsV1",
        Ty::Json => "v1.JSON",
        Ty::SchemaOrArray => "v1.JSONSchemaPropsOrArray",
        Ty::SchemaOrBool => "v1.JSONSchemaPropsOrBool",
        Ty::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray",
        Ty::Message(slot) => return format!("{}.{}", slot.table.version(), slot.name),
    };
    name.to_owned()
}
