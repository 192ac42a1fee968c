//! ResourceQuotas.

use std::collections::BTreeSet;

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{IMMUTABLE, SPEC, STATUS};
use crate::core::resource;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, quantity};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["quota"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate: |object, errors| {
            validate_spec(object, errors);
            validate_status(object, object, errors);
        },
        validate_update,
        validate_status,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Request", "What is used of each limit on requests"),
            Column::text("Limit", "What is used of each limit on limits"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::namespaced("", "v1", "resourcequotas", "resourcequota", "ResourceQuota")
};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
/// Scopes that exclude each other.
const CONFLICTING: [(&str, &str); 2] =
    [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

fn validate_spec(object: &Value, errors: &mut Vec<FieldError>) {
    limits(object, "/spec/hard", &SPEC.field("hard"), errors);
    let scopes = json::texts(object, "/spec/scopes");
    let path = SPEC.field("scopes");
    let given = || json::at(object, "/spec/scopes").cloned().unwrap_or_default();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.push(FieldError::invalid(path, given(), "unsupported scope"));
        }
        for _ in misapplied(object, scope) {
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, given(), detail));
        }
    }
    if conflict(&scopes) {
        errors.push(FieldError::invalid(path, given(), "conflicting scopes"));
    }
    scope_selector(object, errors);
}

fn limits(object: &Value, pointer: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (name, amount) in json::entries(object, pointer) {
        let path = path.key(name);
        resource::validate_for_quota(name, &path, errors);
        quantity::for_resource(name, amount, &path, errors);
    }
}

/// The limited resources that `scope` says nothing about.
fn misapplied<'a>(object: &'a Value, scope: &str) -> Vec<&'a String> {
    let applies = |name: &str| match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => matches!(
            name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name),
            "pods" | "cpu" | "memory"
        ),
    };
    json::entries(object, "/spec/hard")
        .map(|(name, _)| name)
        .filter(|name| {
            SCOPES.contains(&scope) && resource::is_standard_for_quota(name) && !applies(name)
        })
        .collect()
}

fn conflict(scopes: &[&str]) -> bool {
    CONFLICTING.iter().any(|(a, b)| scopes.contains(a) && scopes.contains(b))
}

fn scope_selector(object: &Value, errors: &mut Vec<FieldError>) {
    let selector = SPEC.field("scopeSelector");
    let path = selector.field("matchExpressions");
    let requirements = json::list(object, "/spec/scopeSelector/matchExpressions");
    for requirement in requirements {
        let scope = json::text(requirement, "/scopeName");
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path.field("scopeName"), scope, "unsupported scope"));
        }
        for _ in misapplied(object, scope) {
            let given = json::at(object, "/spec/scopeSelector").cloned().unwrap_or_default();
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, given, detail));
        }
        requirement_operator(requirement, scope, &path, errors);
    }
    let scopes: Vec<&str> =
        requirements.iter().map(|requirement| json::text(requirement, "/scopeName")).collect();
    if conflict(&scopes) {
        let given = json::at(object, "/spec/scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, given, "conflicting scopes"));
    }
}

fn requirement_operator(
    requirement: &Value,
    scope: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let operator = json::text(requirement, "/operator");
    let valued = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
    if SCOPES.contains(&scope) && !valued && operator != "Exists" {
        errors.push(FieldError::invalid(
            path.field("operator"),
            operator,
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
             ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
             ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
        ));
    }
    let values = json::list(requirement, "/values");
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            path.field("values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
            path.field("values"),
            values.to_vec(),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(FieldError::invalid(
            path.field("operator"),
            operator,
            "not a valid selector operator",
        )),
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_spec(new, errors);
    let scopes =
        |object| json::texts(object, "/spec/scopes").into_iter().collect::<BTreeSet<&str>>();
    if scopes(new) != scopes(old) {
        let given = json::at(new, "/spec/scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(SPEC.field("scopes"), given, IMMUTABLE));
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    for list in ["hard", "used"] {
        limits(new, &format!("/status/{list}"), &STATUS.field(list), errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in json::entries(object, "/status/hard") {
        let used = json::at(object, "/status/used").and_then(|used| used.get(name));
        let text = format!("{name}: {}/{}", print::quantity(used), print::quantity(Some(hard)));
        if name.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![
        print::name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        print::age(object, now),
    ]
}
