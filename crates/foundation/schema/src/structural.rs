//! The rules for the schema of a CustomResourceDefinition.
//!
//! A structural schema says for every field what type it has, outside of `allOf`,
//! `anyOf`, `oneOf` and `not`; only then are pruning and defaulting well defined. The
//! checks work on the JSON of the schema, not on [`Schema`](crate::Schema), which no
//! longer knows what was forbidden. Paths and texts are those of upstream.

mod complete;
mod defaults;
mod invariant;
mod keyword;
mod raw;

use serde_json::Value;

use crate::field::{FieldError, Path};
use crate::parse;
use raw::Raw;

/// All errors of the `openAPIV3Schema` at `at`:
/// `spec.versions[0].schema.openAPIV3Schema`.
pub fn check_structural(raw: &Value, at: &Path<'_>) -> Vec<FieldError> {
    let schema = match parse::parse_at(raw, at) {
        Ok(schema) => schema,
        Err(errors) => return errors,
    };
    let view = Raw::new(raw);
    let mut errors = Vec::new();
    if view.flag("nullable") {
        let text = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(at.field("nullable"), text));
    }
    let unsupported = keyword::first_unsupported(view);
    if unsupported.is_none() {
        let mut found = invariant::check(view, at);
        found.extend(complete::check(view, at));
        found.sort_by_cached_key(ToString::to_string);
        if found.is_empty() {
            found = defaults::check(&schema, at);
        }
        errors.extend(found);
    }
    errors.extend(keyword::check(view, at));
    if let Some(keyword) = unsupported.filter(|_| errors.is_empty()) {
        let text = format!("OpenAPIV3Schema '{keyword}' is not supported");
        errors.push(FieldError::invalid(at, "", text));
    }
    if errors.is_empty() {
        errors.extend(crate::cel::check_rules(&schema, at));
    }
    errors
}

/// The errors of keywords that the root of a schema may not have when the status subresource is
/// on, because status is then validated by `properties.status` alone.
pub fn check_status_root(raw: &Value, at: &Path<'_>) -> Vec<FieldError> {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum \
        ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf \
        Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";
    let view = Raw::new(raw);
    let mut errors = Vec::new();
    if !matches!(view.ty(), "" | "object") {
        let text = "only \"object\" is allowed as the type at the root of the schema if the \
            status subresource is enabled";
        errors.push(FieldError::invalid(at.field("type"), view.ty(), text));
    }
    if view.set_keywords().any(|keyword| !allowed_with_status(keyword)) {
        let text = format!(
            "only {ALLOWED} fields are allowed at the root of the schema if the status \
             subresource is enabled"
        );
        errors.push(FieldError::invalid(at, "", text));
    }
    errors
}

fn allowed_with_status(keyword: &str) -> bool {
    matches!(
        keyword,
        "description"
            | "type"
            | "format"
            | "title"
            | "maximum"
            | "exclusiveMaximum"
            | "minimum"
            | "exclusiveMinimum"
            | "maxLength"
            | "minLength"
            | "pattern"
            | "maxItems"
            | "minItems"
            | "uniqueItems"
            | "multipleOf"
            | "required"
            | "items"
            | "properties"
            | "externalDocs"
            | "example"
            | "x-kubernetes-preserve-unknown-fields"
            | "x-kubernetes-validations"
    )
}

#[cfg(test)]
mod tests;
