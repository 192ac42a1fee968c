//! PriorityClasses.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, METADATA};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pc"],
    strategy: Strategy {
        default: |object| json::fill(object, "preemptionPolicy", "PreemptLowerPriority"),
        validate,
        validate_update,
        generation: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::integer("Value", "The higher, the more important"),
            Column::boolean("Global-Default", "Whether it holds where none is named"),
            Column::AGE,
            Column::text("PreemptionPolicy", "Whether it may displace others"),
        ],
        cells,
    },
    ..Resource::cluster(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
    )
};

/// The most a class that is not the system's may be worth.
const HIGHEST: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
const SYSTEM: [(&str, i64, &str); 2] = [
    ("system-node-critical", 2_000_001_000, "For what must not leave its node."),
    ("system-cluster-critical", 2_000_000_000, "For what the cluster needs, on whichever node."),
];

/// The two classes every cluster has from the start.
pub fn system_priority_classes() -> Vec<Value> {
    let class = |(name, value, description): (&str, i64, &str)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    };
    SYSTEM.into_iter().map(class).collect()
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let (name, value) = (json::text(object, "/metadata/name"), json::int(object, "/value"));
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(problem) = system_problem(name, value, json::flag(object, "/globalDefault")) {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use \
                 only. error: {problem}"
            );
            errors.push(FieldError::forbidden(METADATA.field("name"), detail));
        }
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policies = &["PreemptLowerPriority", "Never"];
    check::one_of(object, "preemptionPolicy", policies, &Path::Root, errors);
}

fn system_problem(name: &str, value: i64, global: bool) -> Option<String> {
    let Some((_, want, _)) = SYSTEM.iter().find(|(known, _, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *want {
        return Some(format!("value of {name} PriorityClass must be {want}"));
    }
    global.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if json::int(new, "/value") != json::int(old, "/value") {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    check::immutable(new, old, "preemptionPolicy", &Path::Root, errors);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        print::name(object),
        json::int(object, "/value").into(),
        json::flag(object, "/globalDefault").into(),
        print::age(object, now),
        json::text(object, "/preemptionPolicy").into(),
    ]
}
