//! The shape of a structural schema, node by node.

use super::raw::{Additional, Raw};
use crate::field::{FieldError, Path};
use crate::validate::pattern;

/// The level of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

pub(super) fn check(raw: Raw<'_>, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_node(raw, SchemaLevel::Root, at, &mut errors);
    errors
}

fn check_node(raw: Raw<'_>, level: SchemaLevel, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    match raw.items() {
        Some(items) => check_node(items, SchemaLevel::Item, &at.field("items"), errors),
        None if raw.ty() == "array" => {
            errors.push(FieldError::required(at.field("items"), "must be specified"));
        }
        None => {}
    }
    let properties = at.field("properties");
    for (name, property) in raw.properties() {
        check_node(property, SchemaLevel::Field, &properties.key(name), errors);
    }
    if let Some(additional) = raw.additional() {
        let at = at.field("additionalProperties");
        if level == SchemaLevel::Root {
            errors.push(FieldError::forbidden(at, "must not be used at the root"));
        }
        if let Additional::Schema(schema) = additional {
            check_node(schema, SchemaLevel::Field, &at, errors);
        }
    }
    check_extensions(raw, at, errors);
    check_type(raw, level, at, errors);
    let first_any = raw.schemas("allOf").next().is_some_and(Raw::is_int_or_string);
    check_values(raw, raw.is_int_or_string(), first_any, at, errors);
    check_metadata(raw, level, at, errors);
}

fn check_extensions(raw: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !raw.flag("x-kubernetes-int-or-string") {
        return;
    }
    let text = "must be false if x-kubernetes-int-or-string is true";
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if raw.flag(name) {
            errors.push(FieldError::invalid(at.field(name), true, text));
        }
    }
}

fn check_type(raw: Raw<'_>, level: SchemaLevel, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ty = raw.ty();
    let embedded = raw.flag("x-kubernetes-embedded-resource");
    let preserving = raw.flag("x-kubernetes-preserve-unknown-fields");
    let here = at.field("type");
    if embedded && ty != "object" {
        let text = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => FieldError::required(here, text),
            ty => FieldError::invalid(here, ty, text),
        });
    } else if ty.is_empty() && !raw.flag("x-kubernetes-int-or-string") && !preserving {
        let text = match level {
            SchemaLevel::Root => "must not be empty at the root",
            SchemaLevel::Item => "must not be empty for specified array items",
            SchemaLevel::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(here, text));
    }
    if embedded && raw.additional().is_some() {
        let text = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(at.field("additionalProperties"), text));
    }
    if level == SchemaLevel::Root && !matches!(ty, "" | "object") {
        errors.push(FieldError::invalid(here, ty, "must be object at the root"));
    }
    if embedded && !preserving && !raw.has_properties() {
        let text = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at.field("properties"), text));
    }
}

/// The server itself owns `apiVersion`, `kind` and `metadata`; a schema may only narrow names.
fn check_metadata(raw: Raw<'_>, level: SchemaLevel, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let resource = level == SchemaLevel::Root || raw.flag("x-kubernetes-embedded-resource");
    let properties = at.field("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = raw.property(name).filter(|_| resource)
            && property.ty() != "string"
        {
            let at = properties.key(name);
            errors.push(FieldError::invalid(at.field("type"), property.ty(), "must be string"));
        }
    }
    let Some(metadata) = raw.property("metadata") else { return };
    let at = properties.key("metadata");
    if resource && metadata.ty() != "object" {
        errors.push(FieldError::invalid(at.field("type"), metadata.ty(), "must be object"));
    }
    let only_names = metadata.properties().all(|(name, _)| matches!(name, "name" | "generateName"));
    let else_empty = metadata.set_keywords().all(|keyword| match keyword {
        "type" | "default" => true,
        "properties" => only_names,
        _ => false,
    });
    if level == SchemaLevel::Root && !else_empty {
        let text = "must not specify anything other than name and generateName, but metadata \
            is implicitly specified";
        errors.push(FieldError::forbidden(at, text));
    }
}

/// `skip_any`: this schema's `anyOf` is the int-or-string idiom; `skip_first`: that of its
/// first `allOf` is.
fn check_values(
    raw: Raw<'_>,
    skip_any: bool,
    skip_first: bool,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for name in ["anyOf", "allOf", "oneOf"] {
        if name == "anyOf" && skip_any {
            continue;
        }
        let at = at.field(name);
        for (index, schema) in raw.schemas(name).enumerate() {
            let idiom = name == "allOf" && index == 0 && skip_first;
            check_nested(schema, idiom, &at.index(index), errors);
        }
    }
    if let Some(schema) = raw.not() {
        check_nested(schema, false, &at.field("not"), errors);
    }
    let wanted = raw.text("pattern");
    if !wanted.is_empty()
        && let Err(error) = pattern::compile(wanted)
    {
        let text = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(at.field("pattern"), wanted, text));
    }
}

/// A schema inside a junctor may only narrow values, never say what fields there are.
fn check_nested(raw: Raw<'_>, skip_any: bool, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    check_values(raw, skip_any, false, at, errors);
    if let Some(items) = raw.items() {
        check_nested(items, false, &at.field("items"), errors);
    }
    let properties = at.field("properties");
    for (name, property) in raw.properties() {
        check_nested(property, false, &properties.key(name), errors);
    }
    for (keyword, text) in FORBIDDEN {
        let set = match raw.get(keyword) {
            Some(value) if *keyword == "additionalProperties" => value != false,
            Some(_) => {
                matches!(*keyword, "x-kubernetes-list-type" | "x-kubernetes-map-type" | "default")
                    || raw.set_keywords().any(|set| set == *keyword)
            }
            None => false,
        };
        if set {
            errors.push(FieldError::forbidden(at.field(keyword), *text));
        }
    }
    if raw.property("metadata").is_some() {
        let text = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(properties.key("metadata"), text));
    }
}

const FORBIDDEN: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];
