//! Static types of expressions, and how large their values can get.

use std::fmt;
use std::rc::Rc;

use super::cost;
use super::value::{ResourceValue, field_schema};
use crate::node::{Additional, SchemaNode, Type};

#[derive(Debug, Clone)]
pub(super) enum Ty<'a> {
    /// Known at run time only.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Timestamp,
    Duration,
    List(Rc<Typed<'a>>),
    Map(Rc<Typed<'a>>),
    Object(&'a SchemaNode, ResourceValue),
    Optional(Rc<Typed<'a>>),
    /// A type with a name only: constructed objects, queries to the authorizer.
    Named(Rc<str>),
    Type,
}

/// A type, and the most characters, items or entries that a value of it has.
#[derive(Debug, Clone)]
pub(super) struct Typed<'a> {
    pub(super) ty: Ty<'a>,
    pub(super) size: u64,
}

impl<'a> Typed<'a> {
    pub(super) fn new(ty: Ty<'a>, size: u64) -> Self {
        Self { ty, size }
    }

    pub(super) fn dynamic() -> Self {
        Self::new(Ty::Dyn, cost::MAX_REQUEST)
    }

    /// The type that a schema gives to its values; without one, rules cannot see them.
    pub(super) fn of(node: &'a SchemaNode, resource: ResourceValue) -> Option<Self> {
        let size = cost::max_size(node);
        let ty = match node.ty {
            Type::Any => return None,
            Type::IntOrString => Ty::Dyn,
            Type::Boolean => Ty::Bool,
            Type::Integer => Ty::Int,
            Type::Number => Ty::Double,
            Type::String => match cost::format(node) {
                Some("date" | "date-time") => Ty::Timestamp,
                Some("duration") => Ty::Duration,
                Some("byte") => Ty::Bytes,
                _ => Ty::Text,
            },
            Type::Array => Ty::List(Rc::new(Self::of(node.items.as_deref()?, ResourceValue::No)?)),
            Type::Object => match &node.additional {
                Additional::Of(values) => Ty::Map(Rc::new(Self::of(values, ResourceValue::No)?)),
                Additional::Anything | Additional::Closed => {
                    let resource = if node.embedded { ResourceValue::Yes } else { resource };
                    Ty::Object(node, resource)
                }
            },
        };
        Some(Self::new(ty, size))
    }

    /// The type of a field as written in an expression.
    pub(super) fn field(&self, name: &str) -> Field<'a> {
        match &self.ty {
            Ty::Dyn => Field::Known(Self::dynamic()),
            Ty::Map(values) => Field::Known((**values).clone()),
            Ty::Object(node, resource) => {
                let name = super::name::unescape(name);
                field_schema(node, *resource, &name)
                    .and_then(|schema| Self::of(schema, ResourceValue::No))
                    .map_or(Field::Undefined, Field::Known)
            }
            Ty::Optional(inner) => match inner.field(name) {
                Field::Known(field) => {
                    let size = field.size;
                    Field::Known(Self::new(Ty::Optional(Rc::new(field)), size))
                }
                other => other,
            },
            _ => Field::Unsupported,
        }
    }

    /// The type of an item or a map's value.
    pub(super) fn element(&self) -> Typed<'a> {
        match &self.ty {
            Ty::List(element) | Ty::Map(element) => (**element).clone(),
            Ty::Optional(inner) => {
                let element = inner.element();
                let size = element.size;
                Self::new(Ty::Optional(Rc::new(element)), size)
            }
            _ => Self::dynamic(),
        }
    }
}

pub(super) enum Field<'a> {
    Known(Typed<'a>),
    Undefined,
    /// The type has no fields at all.
    Unsupported,
}

impl Ty<'_> {
    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub(super) fn may_be_bool(&self) -> bool {
        matches!(self, Self::Bool | Self::Dyn)
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether values of both types can be equal. Null is left alone.
    pub(super) fn matches(&self, other: &Ty<'_>) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Null, _) | (_, Ty::Dyn | Ty::Null) => true,
            (Self::List(left), Ty::List(right)) => left.ty.matches(&right.ty),
            (Self::Optional(left), Ty::Optional(right)) => left.ty.matches(&right.ty),
            (Self::Named(left), Ty::Named(right)) => left == right,
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        }
    }
}

impl fmt::Display for Ty<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => out.write_str("dyn"),
            Self::Null => out.write_str("null"),
            Self::Bool => out.write_str("bool"),
            Self::Int => out.write_str("int"),
            Self::Uint => out.write_str("uint"),
            Self::Double => out.write_str("double"),
            Self::Text => out.write_str("string"),
            Self::Bytes => out.write_str("bytes"),
            Self::Timestamp => out.write_str("timestamp"),
            Self::Duration => out.write_str("duration"),
            Self::List(element) => write!(out, "list({})", element.ty),
            Self::Map(element) => write!(out, "map(string, {})", element.ty),
            Self::Object(..) => out.write_str("object"),
            Self::Optional(inner) => write!(out, "optional_type({})", inner.ty),
            Self::Named(name) => out.write_str(name),
            Self::Type => out.write_str("type"),
        }
    }
}
