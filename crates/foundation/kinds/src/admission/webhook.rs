//! Webhook configurations.

use schema::{FieldError, Path};
use serde_json::{Value, json};

use super::expression::{Params, admission_names};
use super::{FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, rule};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::webhook::{default_port, validate_client, validate_review_versions};
use crate::{check, json, labels, print, syntax};

pub(crate) const MUTATING: Resource = Resource {
    categories: &["api-extensions"],
    strategy: Strategy {
        default: |object| {
            default(object);
            for hook in json::items_mut(object, "webhooks") {
                json::fill(hook, "reinvocationPolicy", "Never");
            }
        },
        ..STRATEGY
    },
    printer: PRINTER,
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
        "MutatingWebhookConfiguration",
    )
};

pub(crate) const VALIDATING: Resource = Resource {
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    kind: "ValidatingWebhookConfiguration",
    table: "validatingwebhookconfigurations",
    strategy: STRATEGY,
    ..MUTATING
};

const STRATEGY: Strategy = Strategy {
    default,
    validate,
    validate_update: |new, _, errors| validate(new, errors),
    generation: true,
    unconditional_update: false,
    ..Strategy::GENERIC
};

const PRINTER: Printer = Printer {
    columns: &[Column::NAME, Column::integer("Webhooks", "How many hooks it has"), Column::AGE],
    cells: |object, now| {
        let hooks = json::count(object, "/webhooks");
        vec![print::name(object), hooks.into(), print::age(object, now)]
    },
};

/// The side effects that a webhook may have, sorted.
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];

fn default(object: &mut Value) {
    for hook in json::items_mut(object, "webhooks") {
        json::fill(hook, "failurePolicy", "Fail");
        json::fill(hook, "matchPolicy", "Equivalent");
        json::fill(hook, "namespaceSelector", json!({}));
        json::fill(hook, "objectSelector", json!({}));
        json::fill(hook, "timeoutSeconds", 10);
        rule::default_rules(hook, "rules");
        if let Some(service) = hook.pointer_mut("/clientConfig/service") {
            default_port(service);
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let list = root.field("webhooks");
    let hooks = json::list(object, "/webhooks");
    for (index, hook) in hooks.iter().enumerate() {
        let path = list.index(index);
        let name = json::text(hook, "/name");
        validate_hook(hook, &path, errors);
        if !name.is_empty() && hooks[..index].iter().any(|other| json::text(other, "/name") == name)
        {
            errors.push(FieldError::duplicate(path.field("name"), name));
        }
    }
}

fn validate_hook(hook: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate_name(json::text(hook, "/name"), &path.field("name"), errors);
    let list = path.field("rules");
    for (index, rule) in json::list(hook, "/rules").iter().enumerate() {
        rule::validate_rule(rule, &list.index(index), errors);
    }
    check::one_of(hook, "failurePolicy", FAILURE_POLICIES, path, errors);
    check::one_of(hook, "matchPolicy", MATCH_POLICIES, path, errors);
    if json::has(hook, "/sideEffects") {
        check::one_of(hook, "sideEffects", SIDE_EFFECTS, path, errors);
    } else {
        let detail = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(path.field("sideEffects"), detail));
    }
    if let Some(seconds) = json::int_at(hook, "/timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(path.field("timeoutSeconds"), seconds, detail));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        let selector = json::at(hook, &format!("/{key}"));
        labels::validate_selector(selector, &path.field(key), errors);
    }
    check::one_of(hook, "reinvocationPolicy", REINVOCATION_POLICIES, path, errors);
    let null = Value::Null;
    let config = hook.get("clientConfig").unwrap_or(&null);
    validate_client(config, &path.field("clientConfig"), errors);
    rule::validate_conditions(hook, &admission_names(Params::None), path, errors);
    let versions = json::texts(hook, "/admissionReviewVersions");
    let missing = "must specify one of v1, v1beta1";
    validate_review_versions(&versions, missing, &path.field("admissionReviewVersions"), errors);
}

fn validate_name(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let problems = syntax::subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}
