//! Whether a value fits its schema as far as merging goes: kinds, keys that can
//! be distinguished, no undeclared fields. The rest of validation is crate `schema`'s.

use std::fmt;

use schema::{SchemaNode, Type};
use serde_json::Value;

use super::field_element;
use super::walk::{Ty, ValueKind};
use crate::go::go_print;
use crate::path::{Path, PathElement};

/// Whether items with the same key are a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// In stored objects, which must stay readable.
    Allowed,
    /// In applied configurations.
    Refused,
}

/// An error at one position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    #[error("field not declared in schema")]
    Undeclared,
    #[error("duplicate entries for key {0}")]
    Duplicate(PathElement),
    #[error("element {at}: {why}")]
    Item { at: usize, why: String },
    #[error("expected {expected}, got {actual}")]
    Kind { expected: &'static str, actual: String },
}

/// All that is wrong, each with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<(Path, FieldFault)>);

impl Faults {
    pub(super) fn one(fault: FieldFault) -> Self {
        Self(vec![(Path::default(), fault)])
    }

    /// The same, seen from one step above.
    pub(super) fn within(mut self, element: &PathElement) -> Self {
        for (path, _) in &mut self.0 {
            path.0.insert(0, element.clone());
        }
        self
    }
}

impl std::error::Error for Faults {}

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |out: &mut fmt::Formatter<'_>, (path, fault): &(Path, FieldFault)| {
            if path.0.is_empty() { write!(out, "{fault}") } else { write!(out, "{path}: {fault}") }
        };
        match self.0.as_slice() {
            [fault] => one(out, fault),
            faults => {
                out.write_str("errors:")?;
                faults.iter().try_for_each(|fault| {
                    out.write_str("\n  ")?;
                    one(out, fault)
                })
            }
        }
    }
}

pub(super) fn validate(ty: Ty<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Faults> {
    let mut walk = Walk { duplicates, path: Vec::new(), faults: Vec::new() };
    walk.visit(ty, value);
    if walk.faults.is_empty() { Ok(()) } else { Err(Faults(walk.faults)) }
}

struct Walk {
    duplicates: Duplicates,
    path: Vec<PathElement>,
    faults: Vec<(Path, FieldFault)>,
}

impl Walk {
    fn fault(&mut self, fault: FieldFault) {
        self.faults.push((Path(self.path.clone()), fault));
    }

    fn expected(&mut self, expected: &'static str, value: &Value) {
        self.fault(FieldFault::Kind { expected, actual: value.to_string() });
    }

    /// The same for what has parts; upstream prints it as the Go struct that holds it.
    fn instead_of(&mut self, expected: &'static str, value: &Value) {
        let actual = format!("&{{{}}}", go_print(value));
        self.fault(FieldFault::Kind { expected, actual });
    }

    fn visit(&mut self, ty: Ty<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (ty.kind(Some(value)), value) {
            (ValueKind::Map, Value::Object(fields)) => {
                for (name, value) in fields {
                    self.path.push(field_element(name));
                    match ty.field(name) {
                        Ty::Undeclared => self.fault(FieldFault::Undeclared),
                        field => self.visit(field, value),
                    }
                    self.path.pop();
                }
            }
            (ValueKind::Map, other) => self.instead_of("map", other),
            (ValueKind::List, Value::Array(items)) => self.items(ty, items),
            (ValueKind::List, other) => self.instead_of("list", other),
            (ValueKind::Scalar, value) => {
                if let Ty::Node(node, _) = ty {
                    self.scalar(node, value);
                }
            }
        }
    }

    fn items(&mut self, list: Ty<'_>, items: &[Value]) {
        let atomic = list.is_atomic(ValueKind::List);
        let mut seen: Vec<PathElement> = Vec::with_capacity(if atomic { 0 } else { items.len() });
        for (at, item) in items.iter().enumerate() {
            let element = if atomic {
                PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
            } else {
                match list.item_element(item) {
                    Ok(element) => element,
                    Err(error) => {
                        self.fault(FieldFault::Item { at, why: error.to_string() });
                        return;
                    }
                }
            };
            if !atomic {
                match seen.binary_search(&element) {
                    Ok(_) if self.duplicates == Duplicates::Refused => {
                        self.fault(FieldFault::Duplicate(element.clone()));
                    }
                    Ok(_) => {}
                    Err(place) => seen.insert(place, element.clone()),
                }
            }
            self.path.push(element);
            self.visit(list.item(), item);
            self.path.pop();
        }
    }

    fn scalar(&mut self, node: &SchemaNode, value: &Value) {
        let fits = match node.ty {
            // Formats of strings (quantities, times, int-or-string) come as other scalars too.
            Type::String if has_format(node) => !value.is_object() && !value.is_array(),
            Type::String => value.is_string(),
            Type::Integer | Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
            _ => !value.is_object() && !value.is_array(),
        };
        if fits {
            return;
        }
        match node.ty {
            Type::Integer | Type::Number => self.fault(FieldFault::Kind {
                expected: "numeric (int or float)",
                actual: go_type(value).to_owned(),
            }),
            Type::String if !has_format(node) => self.fault(FieldFault::Kind {
                expected: "string",
                actual: format!("&value.valueUnstructured{{Value:{value}}}"),
            }),
            Type::Boolean => self.expected("boolean", value),
            _ => self.expected("any scalar", value),
        }
    }
}

fn has_format(node: &SchemaNode) -> bool {
    let format = node.validation.as_ref().and_then(|validation| validation.format.as_deref());
    format.is_some_and(|format| format != "byte")
}

/// The name that upstream's messages give to a value's type.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
