//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding: defaults, validation and
//! columns.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use super::rule;
use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, labels, print, syntax};

pub(crate) const MUTATING: Resource = Resource {
    categories: &["api-extensions"],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        generation: true,
        unconditional_update: false,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("PolicyName", "The policy"),
            Column::text("ParamRef", "What it is configured with"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
        "MutatingAdmissionPolicyBinding",
    )
};

pub(crate) const VALIDATING: Resource = Resource {
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    kind: "ValidatingAdmissionPolicyBinding",
    table: "validatingadmissionpolicybindings",
    strategy: Strategy {
        validate: |object, errors| {
            validate(object, errors);
            validate_actions(object, errors);
        },
        validate_update: |new, _, errors| {
            validate(new, errors);
            validate_actions(new, errors);
        },
        ..MUTATING.strategy
    },
    ..MUTATING
};

/// The actions for a failed rule, sorted.
const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

fn default(object: &mut Value) {
    if let Some(resources) = object.pointer_mut("/spec/matchResources") {
        rule::default_match(resources);
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    if let Some(name) = check::required(spec, "policyName", &SPEC, errors) {
        check::each(syntax::subdomain(name), name, &SPEC.field("policyName"), errors);
    }
    if let Some(reference) = json::at(spec, "/paramRef") {
        validate_reference(reference, &SPEC.field("paramRef"), errors);
    }
    if let Some(resources) = json::at(spec, "/matchResources") {
        rule::validate_match(resources, &SPEC.field("matchResources"), errors);
    }
}

fn validate_reference(reference: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (json::text(reference, "/name"), json::at(reference, "/selector"));
    if !name.is_empty() {
        check::each(syntax::path_segment(name), name, &path.field("name"), errors);
    }
    labels::validate_selector(selector, &path.field("selector"), errors);
    match (name, selector) {
        ("", None) => {
            let detail = "one of name or selector must be specified";
            errors.push(FieldError::required(path, detail));
        }
        (_, Some(_)) if !name.is_empty() => {
            for key in ["name", "selector"] {
                errors.push(FieldError::forbidden(path.field(key), EXCLUSIVE));
            }
        }
        _ => {}
    }
    let actions = &["Deny", "Allow"];
    check::required_one_of(reference, "parameterNotFoundAction", actions, path, errors);
}

fn validate_actions(object: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("validationActions");
    let actions = json::texts(object, "/spec/validationActions");
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.push(FieldError::not_supported(path.index(index), *action, ACTIONS));
        }
    }
    check::distinct(object, "/spec/validationActions", &path, errors);
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure \
                      information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, actions.clone(), detail));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = json::at(object, "/spec/paramRef").map_or("<unset>".to_owned(), |it| {
        match (json::text(it, "/name"), json::text(it, "/namespace")) {
            ("", _) => match json::at(it, "/selector") {
                Some(selector) => labels::format_selector(Some(selector)),
                None => "<unset>".to_owned(),
            },
            (name, "") => format!("*/{name}"),
            (name, namespace) => format!("{namespace}/{name}"),
        }
    });
    vec![
        print::name(object),
        json::text(object, "/spec/policyName").into(),
        reference.into(),
        print::age(object, now),
    ]
}
