//! How a schema reads at one place: as a map, a list or a scalar.

use schema::{Additional, ListType, MapType, Schema, SchemaNode, Type};
use serde_json::Value;

use crate::path::PathElement;

/// The type at one place of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ty<'a> {
    /// A declared type; the flag says that an enclosing type keeps unknown fields.
    Node(&'a SchemaNode, bool),
    /// Nothing is known: maps merge field by field, lists are atomic.
    Deduced,
    /// Nothing is known inside an atomic value: everything is atomic.
    Untyped,
    /// A field that its closed type does not declare; read as [`Ty::Deduced`], refused
    /// by validation.
    Undeclared,
}

/// The kind that a value is treated as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Map,
    List,
    Scalar,
}

/// Why an item of a list has no path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ItemError {
    #[error("associative list with keys may not have a null element")]
    NullEntry,
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

impl<'a> Ty<'a> {
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Self::node(schema, false)
    }

    fn node(node: &'a SchemaNode, inherited: bool) -> Self {
        Self::Node(node, inherited || node.preserve_unknown)
    }

    /// The kind of `value` here. A null, or nothing, is a map wherever a map is possible.
    pub(crate) fn kind(self, value: Option<&Value>) -> ValueKind {
        let declared = match self {
            Self::Node(node, _) => node.ty,
            Self::Deduced | Self::Untyped | Self::Undeclared => Type::Any,
        };
        match declared {
            Type::Object => ValueKind::Map,
            Type::Array => ValueKind::List,
            Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => {
                ValueKind::Scalar
            }
            Type::Any => match value {
                None | Some(Value::Null | Value::Object(_)) => ValueKind::Map,
                Some(Value::Array(_)) => ValueKind::List,
                Some(_) => ValueKind::Scalar,
            },
        }
    }

    /// Whether values of this kind are owned as a whole.
    pub(crate) fn is_atomic(self, kind: ValueKind) -> bool {
        match (self, kind) {
            (_, ValueKind::Scalar) | (Self::Untyped, _) => true,
            (Self::Node(node, _), ValueKind::List) => node.list == ListType::Atomic,
            (Self::Node(node, _), ValueKind::Map) => node.map == MapType::Atomic,
            (Self::Deduced | Self::Undeclared, kind) => kind == ValueKind::List,
        }
    }

    /// Whether `name` is declared here.
    pub(crate) fn declares(self, name: &str) -> bool {
        matches!(self, Self::Node(node, _) if node.property(name).is_some())
    }

    /// The type of the field `name`.
    pub(crate) fn field(self, name: &str) -> Ty<'a> {
        match self {
            Self::Node(node, keeps) => match node.field(name) {
                Some(field) => Self::node(field, keeps),
                None if keeps || node.keeps_unknown() || is_free_form(node) => Self::Deduced,
                None => Self::Undeclared,
            },
            Self::Deduced | Self::Undeclared => Self::Deduced,
            Self::Untyped => Self::Untyped,
        }
    }

    /// Whether this is a map about whose fields nothing is known.
    pub(crate) fn is_free_map(self) -> bool {
        match self {
            Self::Node(node, keeps) => {
                node.properties.is_empty()
                    && match &node.additional {
                        Additional::Anything => true,
                        Additional::Closed => keeps || is_free_form(node),
                        Additional::Of(_) => false,
                    }
            }
            Self::Deduced | Self::Undeclared | Self::Untyped => true,
        }
    }

    /// The type of a list's items.
    pub(crate) fn item(self) -> Ty<'a> {
        match self {
            Self::Node(SchemaNode { items: Some(item), .. }, keeps) => Self::node(item, keeps),
            _ => Self::Untyped,
        }
    }

    /// The element that identifies an item of this (not atomic) list.
    pub(crate) fn item_element(self, item: &Value) -> Result<PathElement, ItemError> {
        match self {
            Self::Node(node, _) => match &node.list {
                ListType::Map(keys) => keyed_element(node, keys, item),
                ListType::Set | ListType::Atomic => set_element(item),
            },
            Self::Deduced | Self::Untyped | Self::Undeclared => set_element(item),
        }
    }
}

/// Whether an object type says nothing about its fields, and so takes any.
fn is_free_form(node: &SchemaNode) -> bool {
    node.properties.is_empty() && node.additional == Additional::Closed
}

fn keyed_element(
    list: &SchemaNode,
    keys: &[Box<str>],
    item: &Value,
) -> Result<PathElement, ItemError> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err(ItemError::NullEntry),
        _ => return Err(ItemError::NotAMap),
    };
    let default = |key: &str| list.items.as_ref()?.property(key)?.default.as_deref();
    let mut element: Vec<(Box<str>, Value)> = keys
        .iter()
        .filter_map(|key| {
            let value = fields.get(&**key).or_else(|| default(key))?;
            Some((key.clone(), value.clone()))
        })
        .collect();
    if element.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(ItemError::NoKeys(keys.join(" ")));
    }
    element.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(PathElement::Key(element.into()))
}

fn set_element(item: &Value) -> Result<PathElement, ItemError> {
    match item {
        Value::Object(_) => Err(ItemError::MapInSet),
        Value::Array(_) => Err(ItemError::ListInSet),
        Value::Null => Err(ItemError::NullInSet),
        scalar => Ok(PathElement::value(scalar.clone())),
    }
}
