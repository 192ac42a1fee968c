//! Defaults must be valid and specified by the schema that they are in.

use serde_json::{Map, Value};

use crate::cel::Compiled;
use crate::field::{FieldError, Path};
use crate::metadata::{self, Malformed};
use crate::node::Schema;
use crate::prune::{self, ObjectLevel};
use crate::validate::{self, embedded};

pub(super) fn check(schema: &Schema, at: &Path<'_>) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new() };
    let inside =
        MetadataPath { resource: schema, parent: None, step: DefaultsStep::Root, metadata: false };
    checker.visit(schema, true, &inside, at);
    checker.errors
}

struct Checker {
    errors: Vec<FieldError>,
}

/// The way from the innermost resource to a schema, for defaults inside its metadata:
/// they are judged as part of a whole object.
#[derive(Clone, Copy)]
struct MetadataPath<'a> {
    resource: &'a Schema,
    parent: Option<&'a MetadataPath<'a>>,
    step: DefaultsStep<'a>,
    metadata: bool,
}

#[derive(Clone, Copy)]
enum DefaultsStep<'a> {
    Root,
    Field(&'a str),
    Item,
}

impl<'a> MetadataPath<'a> {
    fn step(&'a self, step: DefaultsStep<'a>, metadata: bool) -> MetadataPath<'a> {
        MetadataPath { resource: self.resource, parent: Some(self), step, metadata }
    }

    /// The smallest object that has `value` in this place.
    fn surround(&self, value: Value) -> Value {
        let value = match self.step {
            DefaultsStep::Root => value,
            DefaultsStep::Field(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            DefaultsStep::Item => Value::Array(vec![value]),
        };
        match self.parent {
            Some(parent) => parent.surround(value),
            None => value,
        }
    }
}

impl Checker {
    fn visit(&mut self, schema: &Schema, root: bool, inside: &MetadataPath<'_>, at: &Path<'_>) {
        let fresh;
        let resource = root || schema.embedded;
        let inside = if resource {
            fresh = MetadataPath {
                resource: schema,
                parent: None,
                step: DefaultsStep::Root,
                metadata: false,
            };
            &fresh
        } else {
            inside
        };
        if let Some(default) = schema.default.as_deref() {
            let at = at.field("default");
            if inside.metadata {
                self.check_in_metadata(default, schema, inside, &at);
            } else {
                self.check_field(default, schema, root, &at);
            }
        }
        // Maps are left out: a default there never applies to an absent field.
        if let Some(items) = &schema.items {
            let inside = inside.step(DefaultsStep::Item, inside.metadata);
            self.visit(items, false, &inside, &at.field("items"));
        }
        let properties = at.field("properties");
        for (name, property) in &schema.properties {
            let metadata = inside.metadata || resource && prune::is_meta(name);
            let inside = inside.step(DefaultsStep::Field(name), metadata);
            self.visit(property, false, &inside, &properties.key(name));
        }
    }

    fn check_field(&mut self, default: &Value, schema: &Schema, root: bool, at: &Path<'_>) {
        let level = if root || schema.embedded { ObjectLevel::Root } else { ObjectLevel::Field };
        let mut copy = default.clone();
        prune::prune(&mut copy, schema, level);
        if copy != *default {
            let text = "must not have unknown fields";
            self.errors.push(FieldError::invalid(at, default.clone(), text));
        }
        let mut copy = default.clone();
        let coerced = metadata::coerce_at(&mut copy, schema, level, Malformed::Refuse, at);
        if let Err(error) = coerced {
            self.errors.push(error);
            return;
        }
        let found = embedded::validate(default, schema, at);
        if !found.is_empty() {
            self.errors.extend(found);
            return;
        }
        self.check_value(default, schema, at);
    }

    fn check_in_metadata(
        &mut self,
        default: &Value,
        schema: &Schema,
        inside: &MetadataPath<'_>,
        at: &Path<'_>,
    ) {
        let mut object = inside.surround(default.clone());
        if let Value::Object(map) = &mut object {
            map.entry("kind").or_insert_with(|| "Validation".into());
            map.entry("apiVersion").or_insert_with(|| "validation/v1".into());
        }
        let coerced = metadata::coerce_at(
            &mut object,
            inside.resource,
            ObjectLevel::Root,
            Malformed::Refuse,
            &Path::Root,
        );
        let mut wrong: Vec<FieldError> = coerced.err().into_iter().collect();
        if let Some(map) = object.as_object().filter(|_| wrong.is_empty()) {
            embedded::check_resource(map, &Path::Root, &mut wrong);
        }
        if wrong.is_empty() {
            self.check_value(default, schema, at);
            return;
        }
        let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let text = format!("must result in valid metadata: {text}");
        self.errors.push(FieldError::invalid(at, default.clone(), text));
    }

    fn check_value(&mut self, default: &Value, schema: &Schema, at: &Path<'_>) {
        let found = validate::check_schema(default, None, schema, &Path::Root);
        if !found.is_empty() {
            let prefix = at.to_string();
            self.errors.extend(found.into_iter().map(|error| FieldError {
                field: match error.field.as_str() {
                    "" | "<nil>" => prefix.clone(),
                    field => format!("{prefix}.{field}"),
                },
                ..error
            }));
            return;
        }
        // Rules that do not compile are reported where they are defined, not here.
        let compiled = Compiled::new(schema.clone());
        let found = compiled.check_rules(default, Some(default), at);
        self.errors.extend(if found.is_empty() {
            compiled.check_rules(default, None, at)
        } else {
            found
        });
    }
}
