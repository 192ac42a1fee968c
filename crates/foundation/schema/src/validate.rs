//! Checking a value against a schema, with the texts that Kubernetes clients know.
//!
//! The order of checks, the checks that run although the type is already wrong, and the choice of
//! the most fitting alternative of `anyOf`/`oneOf` follow the upstream validator, because users
//! see all of it. CEL rules are not run here; see [`Compiled`](crate::Compiled).

pub(crate) mod embedded;
pub(crate) mod format;
mod junctor;
pub(crate) mod list;
pub(crate) mod number;
pub(crate) mod pattern;
pub(crate) mod ratchet;
mod scalar;

pub use pattern::{Pattern, PatternError};

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::field::{FieldError, Path, Reason};
use crate::node::{Additional, SchemaNode, Type, Validation};
use ratchet::Old;

/// How many failures one validation collects. A hostile object could otherwise have as
/// many as it has bytes, each with its whole path.
pub(crate) const MAX_ERRORS: usize = 1000;

/// Everything that is wrong with `value`: types, bounds, formats, lists with duplicates,
/// embedded resources. With `old`, failures in unchanged parts are forgiven.
pub fn validate(value: &Value, old: Option<&Value>, schema: &SchemaNode) -> Vec<FieldError> {
    validate_at(value, old, schema, &Path::Root)
}

/// [`validate`] for a value at `at` in its object.
pub(crate) fn validate_at(
    value: &Value,
    old: Option<&Value>,
    schema: &SchemaNode,
    at: &Path<'_>,
) -> Vec<FieldError> {
    let mut errors = check_schema(value, old, schema, at);
    errors.extend(embedded::validate(value, schema, at));
    // Duplicates that are already stored must not block unrelated updates.
    if old.is_none_or(|old| list::validate(old, schema, at).is_empty()) {
        errors.extend(list::validate(value, schema, at));
    }
    errors
}

/// The schema's own keywords only.
pub(crate) fn check_schema(
    value: &Value,
    old: Option<&Value>,
    schema: &SchemaNode,
    at: &Path<'_>,
) -> Vec<FieldError> {
    let site = ValueSite { at, old: old.map(|old| Old::new(old, schema)), root: true };
    let mut seen = HashSet::new();
    let mut errors = check_child(value, schema, &site).errors;
    errors.retain(|error| seen.insert(error.to_string()));
    errors
}

/// Names the whole object as upstream prints its empty path.
pub(crate) fn name(at: &Path<'_>) -> String {
    match at {
        Path::Root => "<nil>".to_owned(),
        at => at.to_string(),
    }
}

/// The position of a value, and its old value.
#[derive(Clone, Copy)]
struct ValueSite<'a> {
    at: &'a Path<'a>,
    old: Option<Old<'a>>,
    /// The whole object, whose `apiVersion` and `kind` are never forgiven: conversion
    /// makes them equal in old and new.
    root: bool,
}

/// The result of a check. `score` counts matching parts: among failing alternatives the one with
/// the highest score explains the failure.
#[derive(Debug, Default)]
struct ValidationOutcome {
    errors: Vec<FieldError>,
    score: usize,
}

impl ValidationOutcome {
    fn add(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: ValidationOutcome) {
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        self.score += other.score;
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

impl ValueSite<'_> {
    /// A failure without a field of its own; the text names it.
    fn general(&self, detail: String) -> FieldError {
        FieldError::invalid("<nil>", "", detail)
    }

    fn invalid(&self, value: impl Into<Value>, text: std::fmt::Arguments<'_>) -> FieldError {
        FieldError::invalid(name(self.at), value, format!("{} in body {text}", self.at))
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> FieldError {
        let text = format!("{} in body must be of type {wanted}: {found:?}", self.at);
        FieldError {
            reason: Reason::TypeInvalid,
            ..FieldError::invalid(name(self.at), found, text)
        }
    }
}

fn check(value: &Value, node: &SchemaNode, site: &ValueSite<'_>) -> ValidationOutcome {
    let mut outcome = ValidationOutcome::default();
    let none = Validation::default();
    let validation = node.validation.as_deref().unwrap_or(&none);
    if value.is_null() {
        if node.ty == Type::Any || node.nullable {
            outcome.score += 1;
        } else {
            outcome.add(site.wrong_type(type_name(node.ty), "null"));
        }
        check_enumeration(value, validation, site, &mut outcome);
        return outcome;
    }
    if node.ty != Type::Any || validation.format.is_some() {
        outcome.score += 1;
        check_type(value, node, validation, site, &mut outcome);
    }
    junctor::check(value, validation, site, &mut outcome);
    match value {
        Value::String(text) => scalar::check_text(text, validation, site, &mut outcome),
        Value::Number(number) => number::check(number, node.ty, validation, site, &mut outcome),
        Value::Array(list) => check_list(list, node, validation, site, &mut outcome),
        _ => {}
    }
    check_enumeration(value, validation, site, &mut outcome);
    if let Value::Object(map) = value {
        check_map(map, node, validation, site, &mut outcome);
    }
    // One for the enumeration check, one for having come to the end.
    outcome.score += 2;
    outcome
}

/// A child in a field or list of its own: the level on which failures in
/// unchanged values are forgiven.
fn check_child(value: &Value, node: &SchemaNode, site: &ValueSite<'_>) -> ValidationOutcome {
    let mut outcome = check(value, node, site);
    if !outcome.is_valid() && site.old.is_some_and(|old| old.equals(value)) {
        outcome.errors.clear();
    }
    outcome
}

pub(crate) fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}

fn check_type(
    value: &Value,
    node: &SchemaNode,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.as_i64().is_some() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    };
    let fits = match (node.ty, value) {
        (Type::Integer | Type::IntOrString, Value::Number(number)) => number::is_integer(number),
        (Type::Number, Value::Number(_)) | (Type::IntOrString, Value::String(_)) => true,
        (ty, _) => type_name(ty) == found,
    };
    let numeric = matches!(node.ty, Type::Integer | Type::Number | Type::IntOrString);
    match validation.format.as_deref() {
        Some(format)
            if !fits && found_format != format && !value.is_string() && !value.is_array() =>
        {
            outcome.add(site.wrong_type(format, found_format));
        }
        // The format check speaks for texts; lists slip through upstream as well.
        Some(_) if !numeric && (value.is_string() || value.is_array()) => outcome.score += 1,
        _ if !fits => outcome.add(site.wrong_type(type_name(node.ty), found)),
        _ => outcome.score += 1,
    }
}

fn check_enumeration(
    value: &Value,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    let values = &validation.enumeration;
    if values.is_empty() || values.iter().any(|allowed| scalar::equals(value, allowed)) {
        return;
    }
    let valid: Vec<String> = values
        .iter()
        .map(|allowed| match allowed {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
    outcome.add(FieldError::not_supported(name(site.at), value.clone(), &valid));
}

fn check_list(
    list: &[Value],
    node: &SchemaNode,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    outcome.score += 2;
    if let Some(items) = &node.items {
        let olds = site.old.and_then(|old| old.items());
        for (index, item) in list.iter().enumerate() {
            let at = site.at.index(index);
            let old = olds.as_ref().and_then(|olds| olds.find(item));
            outcome.merge(check_child(item, items, &ValueSite { at: &at, old, root: false }));
        }
    }
    let size = list.len() as u64;
    if let Some(least) = validation.min_items.filter(|least| size < *least) {
        outcome.add(site.invalid(size, format_args!("should have at least {least} items")));
    }
    if let Some(most) = validation.max_items.filter(|most| size > *most) {
        outcome.add(FieldError::too_many(name(site.at), list.len(), most as usize));
    }
    if validation.unique_items && list::has_duplicates(list) {
        outcome.add(site.invalid("", format_args!("shouldn't contain duplicates")));
    }
}

fn check_map(
    map: &Map<String, Value>,
    node: &SchemaNode,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    outcome.score += 1;
    let size = map.len() as u64;
    if let Some(least) = validation.min_properties.filter(|least| size < *least) {
        outcome.add(site.invalid(size, format_args!("should have at least {least} properties")));
    }
    if let Some(most) = validation.max_properties.filter(|most| size > *most) {
        outcome.add(FieldError::too_many(name(site.at), map.len(), most as usize));
    }
    if let Additional::Of(schema) = &node.additional {
        let unnamed = map.iter().filter(|(name, _)| node.property(name).is_none());
        for (name, value) in unnamed {
            outcome.merge(check_field(name, value, schema, site));
        }
    }
    for (name, schema) in &node.properties {
        if let Some(value) = map.get(&**name) {
            outcome.merge(check_field(name, value, schema, site));
        }
    }
    for name in validation.required.iter().filter(|name| !map.contains_key(&***name)) {
        outcome.add(FieldError::required(site.at.field(name), ""));
    }
}

fn check_field(
    name: &str,
    value: &Value,
    schema: &SchemaNode,
    site: &ValueSite<'_>,
) -> ValidationOutcome {
    let at = site.at.field(name);
    let visible = !(site.root && matches!(name, "apiVersion" | "kind"));
    let old = site.old.as_ref().filter(|_| visible).and_then(|old| old.field(name));
    check_child(value, schema, &ValueSite { at: &at, old, root: false })
}

#[cfg(test)]
mod tests;
