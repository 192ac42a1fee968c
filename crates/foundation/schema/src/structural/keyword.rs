//! Which keywords a CustomResourceDefinition's schema may use, and how they combine.

mod list;
mod rule;

use serde_json::Value;

use super::raw::{Additional, Raw};
use crate::field::{FieldError, Path};

pub(super) fn check(raw: Raw<'_>, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let context = Context { no_defaults: None, in_metadata: false };
    visit(raw, true, &context, at, &mut errors);
    errors
}

/// The first keyword, anywhere, with which a schema cannot even be called structural.
pub(super) fn first_unsupported(raw: Raw<'_>) -> Option<&'static str> {
    let texts = [("id", "id"), ("$schema", "schema"), ("$ref", "$ref")];
    let text = texts.into_iter().find(|(keyword, _)| !raw.text(keyword).is_empty());
    let collections = ["patternProperties", "dependencies", "definitions"];
    let collection = collections.into_iter().find(|keyword| raw.named(keyword).next().is_some());
    let other = [
        ("additionalItems", raw.get("additionalItems").is_some()),
        ("items", raw.get("items").is_some_and(Value::is_array)),
        (
            "x-kubernetes-preserve-unknown-fields",
            raw.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)),
        ),
    ];
    let other = other.into_iter().find(|(_, set)| *set).map(|(keyword, _)| keyword);
    text.map(|(_, name)| name)
        .or(collection)
        .or(other)
        .or_else(|| children(raw).find_map(first_unsupported))
}

fn children<'a>(raw: Raw<'a>) -> impl Iterator<Item = Raw<'a>> {
    let additional = match raw.additional() {
        Some(Additional::Schema(schema)) => Some(schema),
        _ => None,
    };
    raw.properties()
        .map(|(_, property)| property)
        .chain(raw.items())
        .chain(raw.not())
        .chain(additional)
        .chain(["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |name| raw.schemas(name)))
}

#[derive(Clone)]
struct Context {
    /// Why defaults are not allowed here, if they are not.
    no_defaults: Option<String>,
    in_metadata: bool,
}

fn visit(raw: Raw<'_>, root: bool, context: &Context, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    check_standard(raw, context, at, errors);
    if raw.flag("uniqueItems") {
        let text =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at.field("uniqueItems"), text));
    }
    visit_fields(raw, root, context, at, errors);
    if let Some(schema) = raw.not() {
        visit(schema, false, context, &at.field("not"), errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        let at = at.field(name);
        for (index, schema) in raw.schemas(name).enumerate() {
            visit(schema, false, context, &at.index(index), errors);
        }
    }
    if let Some(items) = raw.items() {
        visit(items, false, context, &at.field("items"), errors);
    }
    check_extensions(raw, at, errors);
    list::check(raw, at, errors);
    rule::check(raw, at, errors);
}

fn visit_fields(
    raw: Raw<'_>,
    root: bool,
    context: &Context,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(additional) = raw.additional() {
        let at = at.field("additionalProperties");
        if raw.has_properties() && !matches!(additional, Additional::Allowed(true)) {
            let text = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(at, text));
        }
        if let Additional::Schema(schema) = additional {
            let mut context = context.clone();
            if context.in_metadata {
                let reason = "inside additionalProperties applying to object metadata";
                context.no_defaults = Some(reason.to_owned());
            }
            visit(schema, false, &context, &at, errors);
        }
    }
    let resource = root || raw.flag("x-kubernetes-embedded-resource");
    let properties = at.field("properties");
    for (name, property) in raw.properties() {
        let mut context = context.clone();
        if resource && crate::prune::is_meta(name) {
            context.in_metadata = true;
            if root {
                context.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        visit(property, false, &context, &properties.key(name), errors);
    }
}

fn check_standard(raw: Raw<'_>, context: &Context, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
    let ty = raw.ty();
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(at.field("type"), ty, TYPES));
    }
    let mut forbidden = |name: &str, text: &str| {
        errors.push(FieldError::forbidden(at.field(name), text));
    };
    if let Some(reason) = context.no_defaults.as_ref().filter(|_| raw.get("default").is_some()) {
        forbidden("default", &format!("must not be set {reason}"));
    }
    if !raw.text("id").is_empty() {
        forbidden("id", "id is not supported");
    }
    if raw.get("additionalItems").is_some() {
        forbidden("additionalItems", "additionalItems is not supported");
    }
    for name in ["patternProperties", "definitions"] {
        if raw.named(name).next().is_some() {
            forbidden(name, &format!("{name} is not supported"));
        }
    }
    for name in ["dependencies", "$ref"] {
        if raw.get(name).is_some() {
            forbidden(name, &format!("{name} is not supported"));
        }
    }
    if ty == "null" {
        forbidden("type", "type cannot be set to null, use nullable as an alternative");
    }
    if raw.get("items").is_some_and(|items| items.as_array().is_some_and(|list| !list.is_empty())) {
        forbidden("items", "items must be a schema object and not an array");
    }
    if context.in_metadata && raw.flag("x-kubernetes-embedded-resource") {
        forbidden("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
}

fn check_extensions(raw: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if raw.get(preserve) == Some(&Value::Bool(false)) {
        let text = "must be true or undefined";
        errors.push(FieldError::invalid(at.field(preserve), false, text));
    }
    let Some(map_type) = raw.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    let text = "must be object if x-kubernetes-map-type is specified";
    match raw.ty() {
        "object" => {}
        "" => errors.push(FieldError::required(at.field("type"), text)),
        ty => errors.push(FieldError::invalid(at.field("type"), ty, text)),
    }
    if !matches!(map_type, "atomic" | "granular") {
        let at = at.field("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(at, map_type, &["atomic", "granular"]));
    }
}
