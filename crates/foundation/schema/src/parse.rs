//! From the JSON of an `openAPIV3Schema` to a [`Schema`].
//!
//! Reading is lenient: keywords that a structural schema must not contain are ignored here and
//! refused by [`check_structural`](crate::check_structural); only a keyword of the wrong JSON type
//! is an error. Descriptions stay behind in the CustomResourceDefinition. Equal subtrees become
//! one allocation, which keeps large schemas small.

mod intern;
mod keyword;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::field::{FieldError, Path, Reason};
use crate::node::{Additional, CelRule, ListType, MapType, Schema, SchemaNode, Type, Validation};
use crate::validate::format;
use intern::Interner;

pub(crate) use keyword::is_keyword;
pub use keyword::unknown_fields;

/// How deeply schemas may nest. Real ones stay under 40; every walk over a schema or a
/// value that follows it recurses, so this bounds the stack.
pub const MAX_DEPTH: usize = 100;

/// Reads a schema. Fields of the errors are relative to it: `properties[spec].type`.
pub fn parse(raw: &Value) -> Result<Schema, Vec<FieldError>> {
    parse_at(raw, &Path::Root)
}

/// [`parse`] for a schema at `at` in its object.
pub(crate) fn parse_at(raw: &Value, at: &Path<'_>) -> Result<Schema, Vec<FieldError>> {
    let mut parser = Parser { interner: Interner::default(), errors: Vec::new() };
    let schema = parser.node(raw, at, 0);
    if parser.errors.is_empty() { Ok(schema) } else { Err(parser.errors) }
}

struct Parser {
    interner: Interner,
    errors: Vec<FieldError>,
}

impl Parser {
    fn node(&mut self, raw: &Value, at: &Path<'_>, depth: usize) -> Schema {
        let Value::Object(map) = raw else {
            self.wrong(at, raw, "must be a schema object");
            return Arc::default();
        };
        if depth >= MAX_DEPTH {
            let text = format!("schemas must not nest more than {MAX_DEPTH} levels deep");
            self.errors.push(FieldError::forbidden(at, text));
            return Arc::default();
        }
        let mut fields = Fields { map, at, errors: &mut self.errors };
        let mut node = SchemaNode {
            ty: fields.ty(),
            nullable: fields.flag("nullable"),
            preserve_unknown: fields.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: fields.flag("x-kubernetes-embedded-resource"),
            list: fields.list_type(),
            map: match fields.text("x-kubernetes-map-type") {
                Some("atomic") => MapType::Atomic,
                _ => MapType::Granular,
            },
            default: fields.present("default").cloned().map(Box::new),
            ..SchemaNode::default()
        };
        let mut validation = fields.validation(node.ty);
        self.children(map, &mut node, &mut validation, at, depth);
        if validation != Validation::default() {
            node.validation = Some(Box::new(validation));
        }
        self.interner.share(node)
    }

    fn children(
        &mut self,
        map: &Map<String, Value>,
        node: &mut SchemaNode,
        validation: &mut Validation,
        at: &Path<'_>,
        depth: usize,
    ) {
        match map.get("properties") {
            None | Some(Value::Null) => {}
            Some(Value::Object(properties)) => {
                let parent = at.field("properties");
                // A JSON map is sorted by key, which is the order that `Node` asks for.
                node.properties = properties
                    .iter()
                    .map(|(name, raw)| {
                        let schema = self.node(raw, &parent.key(name), depth + 1);
                        (name.as_str().into(), schema)
                    })
                    .collect();
            }
            Some(other) => self.wrong(&at.field("properties"), other, "must be an object"),
        }
        node.additional = match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Additional::Closed,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(raw) => {
                Additional::Of(self.node(raw, &at.field("additionalProperties"), depth + 1))
            }
        };
        node.items = match map.get("items") {
            // A list of schemas is refused by the structural check.
            None | Some(Value::Null | Value::Array(_)) => None,
            Some(raw) => Some(self.node(raw, &at.field("items"), depth + 1)),
        };
        validation.all_of = self.alternatives(map, "allOf", at, depth);
        validation.any_of = self.alternatives(map, "anyOf", at, depth);
        validation.one_of = self.alternatives(map, "oneOf", at, depth);
        validation.not = match map.get("not") {
            None | Some(Value::Null) => None,
            Some(raw) => Some(self.node(raw, &at.field("not"), depth + 1)),
        };
    }

    fn alternatives(
        &mut self,
        map: &Map<String, Value>,
        name: &str,
        at: &Path<'_>,
        depth: usize,
    ) -> Box<[Schema]> {
        let at = at.field(name);
        match map.get(name) {
            None | Some(Value::Null) => Box::default(),
            Some(Value::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(index, raw)| self.node(raw, &at.index(index), depth + 1))
                .collect(),
            Some(other) => {
                self.wrong(&at, other, "must be a list");
                Box::default()
            }
        }
    }

    fn wrong(&mut self, at: &Path<'_>, value: &Value, text: &str) {
        wrong(&mut self.errors, at, value, text);
    }
}

fn wrong(errors: &mut Vec<FieldError>, at: &Path<'_>, value: &Value, text: &str) {
    errors.push(FieldError {
        reason: Reason::TypeInvalid,
        ..FieldError::invalid(at, value.clone(), text)
    });
}

/// The scalar keywords of one schema object, read with their types checked.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    at: &'a Path<'a>,
    errors: &'a mut Vec<FieldError>,
}

impl<'a> Fields<'a> {
    /// Go clients write `null` for what they left unset.
    fn present(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
        wanted: &str,
    ) -> Option<T> {
        let value = self.present(name)?;
        let read = read(value);
        if read.is_none() {
            wrong(self.errors, &self.at.field(name), value, wanted);
        }
        read
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name, Value::as_bool, "must be a boolean").unwrap_or_default()
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        self.take(name, Value::as_str, "must be a string").filter(|text| !text.is_empty())
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.take(name, Value::as_f64, "must be a number")
    }

    fn count(&mut self, name: &str) -> Option<u64> {
        let signed = self.take(name, Value::as_i64, "must be an integer")?;
        Some(u64::try_from(signed).unwrap_or_default())
    }

    fn list(&mut self, name: &str) -> &'a [Value] {
        let list = self.take(name, Value::as_array, "must be a list");
        list.map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&mut self, name: &str) -> Box<[Box<str>]> {
        let list = self.list(name);
        if let Some(other) = list.iter().find(|entry| !entry.is_string()) {
            wrong(self.errors, &self.at.field(name), other, "must be a list of strings");
        }
        list.iter().filter_map(Value::as_str).map(Into::into).collect()
    }

    fn ty(&mut self) -> Type {
        let ty = self.text("type");
        if self.flag("x-kubernetes-int-or-string") {
            return Type::IntOrString;
        }
        match ty {
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ => Type::Any,
        }
    }

    fn list_type(&mut self) -> ListType {
        let keys = self.texts("x-kubernetes-list-map-keys");
        match self.text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(keys),
            _ => ListType::Atomic,
        }
    }

    fn validation(&mut self, ty: Type) -> Validation {
        Validation {
            // A format that does not go with the type is ignored, not an error.
            format: self
                .text("format")
                .filter(|format| format::is_checked(ty, format))
                .map(Into::into),
            minimum: self.number("minimum"),
            exclusive_minimum: self.flag("exclusiveMinimum"),
            maximum: self.number("maximum"),
            exclusive_maximum: self.flag("exclusiveMaximum"),
            multiple_of: self.number("multipleOf"),
            min_length: self.count("minLength"),
            max_length: self.count("maxLength"),
            pattern: self.text("pattern").map(Into::into),
            min_items: self.count("minItems"),
            max_items: self.count("maxItems"),
            unique_items: self.flag("uniqueItems"),
            min_properties: self.count("minProperties"),
            max_properties: self.count("maxProperties"),
            required: self.texts("required"),
            enumeration: self.list("enum").into(),
            rules: self.rules(),
            ..Validation::default()
        }
    }

    fn rules(&mut self) -> Box<[CelRule]> {
        let list = self.list("x-kubernetes-validations");
        let at = self.at.field("x-kubernetes-validations");
        let mut rules = Vec::with_capacity(list.len());
        for (index, raw) in list.iter().enumerate() {
            let at = at.index(index);
            let Value::Object(map) = raw else {
                wrong(self.errors, &at, raw, "must be an object");
                continue;
            };
            let mut fields = Fields { map, at: &at, errors: self.errors };
            rules.push(CelRule {
                rule: fields.text("rule").unwrap_or_default().into(),
                message: fields.text("message").map(Into::into),
                message_expression: fields.text("messageExpression").map(Into::into),
                reason: fields.text("reason").map(Into::into),
                field_path: fields.text("fieldPath").map(Into::into),
                optional_old_self: fields.flag("optionalOldSelf"),
            });
        }
        rules.into()
    }
}

#[cfg(test)]
mod tests;
