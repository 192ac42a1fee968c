//! PodDisruptionBudgets.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::Value;

use crate::check::{self, SPEC, STATUS};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{intstr, json, labels, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pdb"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        validate_status,
        generation: true,
        unconditional_update: false,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Min Available", "How many must stay"),
            Column::text("Max Unavailable", "How many may go"),
            Column::integer("Allowed Disruptions", "How many may go right now"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::namespaced(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
    )
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    if json::has(spec, "/minAvailable") && json::has(spec, "/maxUnavailable") {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(SPEC, spec.clone(), detail));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.get(key) {
            intstr::validate(value, &SPEC.field(key), errors);
            intstr::at_most_everything(value, &SPEC.field(key), errors);
        }
    }
    labels::validate_selector(json::at(spec, "/selector"), &SPEC.field("selector"), errors);
    let policies = &["AlwaysAllow", "IfHealthyBudget"];
    check::one_of(spec, "unhealthyPodEvictionPolicy", policies, &SPEC, errors);
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    let status = new.get("status").unwrap_or(&Value::Null);
    for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        check::not_negative(status, key, &STATUS, errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let show =
        |pointer: &str| json::at(object, pointer).map_or("N/A".to_owned(), print::int_or_string);
    vec![
        print::name(object),
        show("/spec/minAvailable").into(),
        show("/spec/maxUnavailable").into(),
        json::int(object, "/status/disruptionsAllowed").into(),
        print::age(object, now),
    ]
}
