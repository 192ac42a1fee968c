//! Deployments.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::Value;

use super::{
    default_replicated, keeps_selector, no_runtime, validate_counts, validate_status,
    validate_workload,
};
use crate::check::SPEC;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{intstr, json, labels, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            keeps_selector(new, old, errors);
        },
        validate_status,
        warnings: no_runtime,
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    ..Resource::namespaced("apps", "v1", "deployments", "deployment", "Deployment")
};

fn default(object: &mut Value) {
    default_replicated(object);
    let Some(spec) = json::object(object, "spec") else { return };
    if let Some(strategy) = json::object(spec, "strategy") {
        json::fill_zero(strategy, "type", "RollingUpdate");
        if json::text(strategy, "/type") == "RollingUpdate"
            && let Some(rolling) = json::object(strategy, "rollingUpdate")
        {
            json::fill(rolling, "maxUnavailable", "25%");
            json::fill(rolling, "maxSurge", "25%");
        }
    }
    json::fill(spec, "revisionHistoryLimit", 10);
    json::fill(spec, "progressDeadlineSeconds", 600);
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    validate_counts(spec, errors);
    validate_workload(spec, "deployment", "ReplicaSet", errors);
    validate_strategy(spec, errors);
    let ready = json::int(spec, "/minReadySeconds");
    if let Some(deadline) = json::int_at(spec, "/progressDeadlineSeconds")
        && deadline <= ready
    {
        let path = SPEC.field("progressDeadlineSeconds");
        errors.push(FieldError::invalid(path, deadline, "must be greater than minReadySeconds"));
    }
}

fn validate_strategy(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("strategy");
    let rolling = json::at(spec, "/strategy/rollingUpdate");
    match (json::text(spec, "/strategy/type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(path.field("rollingUpdate"), detail));
        }
        ("RollingUpdate", None) => {
            let detail = "this should be defaulted and never be nil";
            errors.push(FieldError::required(path.field("rollingUpdate"), detail));
        }
        ("RollingUpdate", Some(rolling)) => {
            let at = path.field("rollingUpdate");
            for key in ["maxUnavailable", "maxSurge"] {
                if let Some(value) = rolling.get(key) {
                    intstr::validate(value, &at.field(key), errors);
                }
            }
            let down = rolling.get("maxUnavailable");
            if intstr::is_zero(down) && intstr::is_zero(rolling.get("maxSurge")) {
                let value = down.cloned().unwrap_or_default();
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(at.field("maxUnavailable"), value, detail));
            }
            if let Some(down) = down {
                intstr::at_most_everything(down, &at.field("maxUnavailable"), errors);
            }
        }
        ("Recreate", None) => {}
        _ => {
            let given = spec.get("strategy").cloned().unwrap_or_default();
            let valid = &["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, given, valid));
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", "How many are ready, of how many"),
    Column::text("Up-to-date", "How many have the newest template"),
    Column::text("Available", "How many have been ready long enough"),
    Column::AGE,
    Column::text("Containers", "Names of its containers").wide(),
    Column::text("Images", "Images of its containers").wide(),
    Column::text("Selector", "Which pods it counts").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = json::int(object, "/status/readyReplicas");
    let desired = json::int(object, "/spec/replicas");
    let (names, images) = print::containers(object, "/spec/template/spec");
    vec![
        print::name(object),
        format!("{ready}/{desired}").into(),
        json::int(object, "/status/updatedReplicas").into(),
        json::int(object, "/status/availableReplicas").into(),
        print::age(object, now),
        names,
        images,
        labels::format_selector(json::at(object, "/spec/selector")).into(),
    ]
}
