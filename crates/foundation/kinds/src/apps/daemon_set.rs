//! DaemonSets.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::Value;

use super::{default_template, keeps_selector, no_runtime, validate_counts, validate_workload};
use crate::check::SPEC;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{intstr, json, labels, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            keeps_selector(new, old, errors);
        },
        warnings: no_runtime,
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    ..Resource::namespaced("apps", "v1", "daemonsets", "daemonset", "DaemonSet")
};

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    default_template(spec);
    if let Some(strategy) = json::object(spec, "updateStrategy") {
        json::fill_zero(strategy, "type", "RollingUpdate");
        if json::text(strategy, "/type") == "RollingUpdate"
            && let Some(rolling) = json::object(strategy, "rollingUpdate")
        {
            json::fill(rolling, "maxUnavailable", 1);
            json::fill(rolling, "maxSurge", 0);
        }
    }
    json::fill(spec, "revisionHistoryLimit", 10);
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    validate_workload(spec, "daemonset", "DaemonSet", errors);
    validate_counts(spec, errors);
    let path = SPEC.field("updateStrategy");
    let rolling = json::at(spec, "/updateStrategy/rollingUpdate");
    match (json::text(spec, "/updateStrategy/type"), rolling) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => {
            errors.push(FieldError::required(path.field("rollingUpdate"), ""));
        }
        ("RollingUpdate", Some(rolling)) => validate_rolling(rolling, errors),
        _ => {
            let given = spec.get("updateStrategy").cloned().unwrap_or_default();
            let valid = &["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(path, given, valid));
        }
    }
}

fn validate_rolling(rolling: &Value, errors: &mut Vec<FieldError>) {
    let strategy = SPEC.field("updateStrategy");
    let path = strategy.field("rollingUpdate");
    for key in ["maxUnavailable", "maxSurge"] {
        if let Some(value) = rolling.get(key) {
            intstr::validate(value, &path.field(key), errors);
            intstr::at_most_everything(value, &path.field(key), errors);
        }
    }
    let (down, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    match (intstr::is_zero(down), intstr::is_zero(surge)) {
        (false, false) => {
            let value = surge.cloned().unwrap_or_default();
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(path.field("maxSurge"), value, detail));
        }
        (true, true) => {
            let detail = "cannot be 0 when maxSurge is 0";
            errors.push(FieldError::required(path.field("maxUnavailable"), detail));
        }
        _ => {}
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired", "How many nodes should run it"),
    Column::integer("Current", "How many nodes run it"),
    Column::integer("Ready", "How many are ready"),
    Column::integer("Up-to-date", "How many have the newest template"),
    Column::integer("Available", "How many have been ready long enough"),
    Column::text("Node Selector", "Which nodes it is for"),
    Column::AGE,
    Column::text("Containers", "Names of its containers").wide(),
    Column::text("Images", "Images of its containers").wide(),
    Column::text("Selector", "Which pods it counts").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let count = |key: &str| -> Value { json::int(object, &format!("/status/{key}")).into() };
    let (names, images) = print::containers(object, "/spec/template/spec");
    vec![
        print::name(object),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        labels::format_map(json::at(object, "/spec/template/spec/nodeSelector")).into(),
        print::age(object, now),
        names,
        images,
        labels::show_selector(json::at(object, "/spec/selector")).into(),
    ]
}
