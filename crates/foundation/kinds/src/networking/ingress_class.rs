//! IngressClasses.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        default: |object| {
            if let Some(parameters) = object.pointer_mut("/spec/parameters") {
                json::fill(parameters, "scope", "Cluster");
            }
        },
        validate,
        validate_update: |new, old, errors| {
            let null = Value::Null;
            let spec = |object| json::at(object, "/spec").unwrap_or(&null);
            check::immutable(spec(new), spec(old), "controller", &SPEC, errors);
            validate(new, errors);
        },
        generation: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Controller", "What serves ingresses of this class"),
            Column::text("Parameters", "Where its settings are"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "ingressclass", "IngressClass")
};

const CONTROLLER_MAX: usize = 250;

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let controller = json::text(object, "/spec/controller");
    let path = SPEC.field("controller");
    if controller.len() > CONTROLLER_MAX {
        errors.push(FieldError::too_long(path, CONTROLLER_MAX));
    }
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.push(FieldError::required(path, "")),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            check::each(syntax::subdomain(host), host, &path, errors);
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, controller, detail));
        }
    }
    let Some(parameters) = json::at(object, "/spec/parameters") else { return };
    let path = SPEC.field("parameters");
    validate_reference(parameters, &path, errors);
    check::required_one_of(parameters, "scope", &["Cluster", "Namespace"], &path, errors);
    let namespace = json::text_at(parameters, "/namespace");
    match (json::text(parameters, "/scope"), namespace) {
        ("Namespace", None) => errors.push(FieldError::required(
            path.field("namespace"),
            "`parameters.scope` is set to 'Namespace'",
        )),
        ("Namespace", Some(name)) => {
            check::each(syntax::label(name), name, &path.field("namespace"), errors);
        }
        ("Cluster", Some(_)) => errors.push(FieldError::forbidden(
            path.field("namespace"),
            "`parameters.scope` is set to 'Cluster'",
        )),
        _ => {}
    }
}

/// Judges a reference to an object by group, kind and name.
pub(super) fn validate_reference(reference: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(group) = json::text_at(reference, "/apiGroup") {
        check::each(syntax::subdomain(group), group, &path.field("apiGroup"), errors);
    }
    for key in ["kind", "name"] {
        if let Some(text) = check::required(reference, key, path, errors) {
            check::each(syntax::path_segment(text), text, &path.field(key), errors);
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut name = json::text(object, "/metadata/name").to_owned();
    if json::text(object, "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class")
        == "true"
    {
        name.push_str(" (default)");
    }
    let parameters = json::at(object, "/spec/parameters").map_or("<none>".to_owned(), |it| {
        let (kind, name) = (json::text(it, "/kind"), json::text(it, "/name"));
        match json::text_at(it, "/apiGroup") {
            Some(group) => format!("{kind}.{group}/{name}"),
            None => format!("{kind}/{name}"),
        }
    });
    vec![
        name.into(),
        json::text(object, "/spec/controller").into(),
        parameters.into(),
        print::age(object, now),
    ]
}
