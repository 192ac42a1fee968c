//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: defaults, validation (expressions are
//! compiled) and columns.

use jiff::Timestamp;
use schema::cel::{Declarations, ExpectedType};
use schema::{FieldError, Path};
use serde_json::Value;

use super::expression::{admission_names, check as check_expression, params_of};
use super::{FAILURE_POLICIES, REINVOCATION_POLICIES, rule};
use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const MUTATING: Resource = Resource {
    categories: &["api-extensions"],
    strategy: Strategy {
        default,
        validate: validate_mutating,
        validate_update: |new, _, errors| validate_mutating(new, errors),
        generation: true,
        unconditional_update: false,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::integer("Mutations", "How many changes it makes"),
            Column::text("ParamKind", "What it can be configured with"),
            Column::AGE,
        ],
        cells: |object, now| cells(object, "/spec/mutations", now),
    },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicy",
        "MutatingAdmissionPolicy",
    )
};

pub(crate) const VALIDATING: Resource = Resource {
    categories: &["api-extensions"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        validate: validate_validating,
        validate_update: |new, _, errors| validate_validating(new, errors),
        generation: true,
        unconditional_update: false,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::integer("Validations", "How many rules it has"),
            Column::text("ParamKind", "What it can be configured with"),
            Column::AGE,
        ],
        cells: |object, now| cells(object, "/spec/validations", now),
    },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
};

const ANNOTATIONS_MAX: usize = 20;
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill(spec, "failurePolicy", "Fail");
    if let Some(constraints) = spec.get_mut("matchConstraints") {
        rule::default_match(constraints);
    }
}

/// Validates the fields that both kinds of policies share; returns the variables of their
/// expressions.
fn validate(object: &Value, errors: &mut Vec<FieldError>) -> Declarations<'static> {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    check::required_one_of(spec, "failurePolicy", FAILURE_POLICIES, &SPEC, errors);
    if let Some(kind) = json::at(spec, "/paramKind") {
        rule::validate_param_kind(kind, &SPEC.field("paramKind"), errors);
    }
    let path = SPEC.field("matchConstraints");
    match json::at(spec, "/matchConstraints") {
        None => errors.push(FieldError::required(path, "")),
        Some(constraints) => {
            rule::validate_match(constraints, &path, errors);
            if json::list(constraints, "/resourceRules").is_empty() {
                errors.push(FieldError::required(path.field("resourceRules"), ""));
            }
        }
    }
    let mut names = admission_names(params_of(object));
    rule::validate_conditions(spec, &names, &SPEC, errors);
    let list = SPEC.field("variables");
    for (index, variable) in json::list(spec, "/variables").iter().enumerate() {
        let at = list.index(index);
        match json::text(variable, "/name") {
            name if name.trim().is_empty() => {
                errors.push(FieldError::required(at.field("name"), "name is not specified"));
            }
            name if !is_identifier(name) => {
                let detail = "must be a valid CEL identifier";
                errors.push(FieldError::invalid(at.field("name"), name, detail));
            }
            _ => {}
        }
        expression(variable, "expression is not specified", &at, errors);
        let source = json::text(variable, "/expression");
        let compiled = names.variable(json::text(variable, "/name"), source);
        if let (Err(error), false) = (compiled, source.trim().is_empty()) {
            errors.push(FieldError::invalid(at.field("expression"), source, error.to_string()));
        }
    }
    names
}

fn expression(holder: &Value, missing: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if json::text(holder, "/expression").trim().is_empty() {
        errors.push(FieldError::required(path.field("expression"), missing));
    }
}

fn is_identifier(name: &str) -> bool {
    let fits = |char: char| char == '_' || char.is_ascii_alphanumeric();
    name.chars().all(fits)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !schema::is_cel_word(name)
}

fn validate_validating(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let names = validate(object, errors);
    let (rules, annotations) =
        (json::list(spec, "/validations"), json::list(spec, "/auditAnnotations"));
    if rules.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(SPEC.field(key), detail));
        }
    }
    let list = SPEC.field("validations");
    for (index, rule) in rules.iter().enumerate() {
        validate_validation(rule, &names, &list.index(index), errors);
    }
    let name = json::text(object, "/metadata/name");
    let list = SPEC.field("auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(FieldError::invalid(list, annotations.to_vec(), detail));
    }
    for (index, annotation) in annotations.iter().enumerate() {
        let at = list.index(index);
        let key = json::text(annotation, "/key");
        let full = format!("{name}/{key}");
        check::each(syntax::qualified_name(&full), &full, &at.field("key"), errors);
        if json::text(annotation, "/valueExpression").trim().is_empty() {
            let detail = "valueExpression is not specified";
            errors.push(FieldError::required(at.field("valueExpression"), detail));
        }
        let source = json::text(annotation, "/valueExpression");
        let plain = names.clone().without_authorizer();
        let at_value = at.field("valueExpression");
        check_expression(source, &plain, ExpectedType::TextOrNull, &at_value, errors);
        if annotations[..index].iter().any(|other| json::text(other, "/key") == key) {
            errors.push(FieldError::duplicate(at.field("key"), key));
        }
    }
}

fn validate_validation(
    rule: &Value,
    names: &Declarations<'_>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    expression(rule, "expression is not specified", path, errors);
    let source = json::text(rule, "/expression");
    check_expression(source, names, ExpectedType::Bool, &path.field("expression"), errors);
    let (source, at) = (json::text(rule, "/messageExpression"), path.field("messageExpression"));
    check_expression(source, &names.clone().without_authorizer(), ExpectedType::Text, &at, errors);
    for key in ["messageExpression", "message"] {
        let text = json::text(rule, &format!("/{key}"));
        if !text.is_empty() && text.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(path.field(key), text, detail));
        }
    }
    let message = json::text(rule, "/message");
    if message.trim().contains(['\n', '\r']) {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(path.field("message"), message, detail));
    }
    check::one_of(rule, "reason", REASONS, path, errors);
}

fn validate_mutating(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let names = validate(object, errors).constructors();
    let mutations = json::list(spec, "/mutations");
    let list = SPEC.field("mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required(list, "mutations must contain at least one item"));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, &names, &list.index(index), errors);
    }
    check::required_one_of(spec, "reinvocationPolicy", REINVOCATION_POLICIES, &SPEC, errors);
}

fn validate_mutation(
    mutation: &Value,
    names: &Declarations<'_>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let (given, other, wanted) = match json::text(mutation, "/patchType") {
        "" => {
            errors.push(FieldError::required(path.field("patchType"), ""));
            return;
        }
        "JSONPatch" => ("jsonPatch", "applyConfiguration", ExpectedType::JsonPatch),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", ExpectedType::Configuration),
        _ => {
            let types = &["ApplyConfiguration", "JSONPatch"];
            check::one_of(mutation, "patchType", types, path, errors);
            return;
        }
    };
    let kind = json::text(mutation, "/patchType");
    match json::at(mutation, &format!("/{given}")) {
        Some(patch) => {
            let at = path.field(given);
            expression(patch, "", &at, errors);
            let source = json::text(patch, "/expression");
            check_expression(source, names, wanted, &at.field("expression"), errors);
        }
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(FieldError::required(path.field(given), detail));
        }
    }
    if json::has(mutation, &format!("/{other}")) {
        let detail = format!("must not be specified when patchType is {kind}");
        errors.push(FieldError::invalid(path.field(other), format!("{{{other}}}"), detail));
    }
}

fn cells(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = json::at(object, "/spec/paramKind").map_or("<unset>".to_owned(), |kind| {
        format!("{}/{}", json::text(kind, "/apiVersion"), json::text(kind, "/kind"))
    });
    vec![
        print::name(object),
        json::count(object, rules).into(),
        kind.into(),
        print::age(object, now),
    ]
}
