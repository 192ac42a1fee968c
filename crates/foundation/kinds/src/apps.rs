//! Group `apps`: workloads made of pods, kept for clients that apply them.

pub(crate) mod controller_revision;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::Column;
use crate::{json, labels, podspec, print};

/// Fills what workloads with a number of replicas share.
pub(crate) fn default_replicated(object: &mut Value) {
    if let Some(spec) = json::object(object, "spec") {
        json::fill(spec, "replicas", 1);
        default_template(spec);
    }
}

/// The warning for objects that nothing here will run.
pub const NO_RUNTIME: &str =
    "no pod runtime in this control plane: stored, but nothing will run it";

pub(crate) fn no_runtime(_: &Value) -> Vec<String> {
    vec![NO_RUNTIME.to_owned()]
}

/// Fills the template of a workload.
pub(crate) fn default_template(spec: &mut Value) {
    if let Some(template) = json::object(spec, "template") {
        podspec::default_template(template);
    }
}

/// Judges selector and template of a workload called `word` in messages; `kind` is its kind.
fn validate_workload(spec: &Value, word: &str, kind: &str, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let path = SPEC.field("selector");
    let template = spec.get("template").unwrap_or(&null);
    match json::at(spec, "/selector") {
        None => {
            errors.push(FieldError::required(path, ""));
            let carried = json::at(template, "/metadata/labels").unwrap_or(&null);
            selects_template(false, carried, errors);
        }
        Some(selector) => {
            let before = errors.len();
            labels::validate_selector(Some(selector), &path, errors);
            if errors.len() > before {
                // Nothing more can be said of what it selects.
                let detail = "invalid label selector";
                errors.push(FieldError::invalid(path, selector.clone(), detail));
                return;
            }
            if labels::is_empty_selector(selector) {
                let detail = format!("empty selector is invalid for {word}");
                errors.push(FieldError::invalid(path, selector.clone(), detail));
            } else {
                let carried = json::at(template, "/metadata/labels").unwrap_or(&null);
                selects_template(labels::matches(selector, carried), carried, errors);
            }
        }
    }
    validate_forever(template, kind, errors);
}

fn selects_template(matches: bool, carried: &Value, errors: &mut Vec<FieldError>) {
    if !matches {
        let template = SPEC.field("template");
        let metadata = template.field("metadata");
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(metadata.field("labels"), carried.clone(), detail));
    }
}

/// Judges a template whose pods are never done.
fn validate_forever(template: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("template");
    podspec::validate_template(template, &path, errors);
    let at = path.field("spec");
    let policy = json::text(template, "/spec/restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(at.field("restartPolicy"), policy, &["Always"]));
    }
    if json::has(template, "/spec/activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(at.field("activeDeadlineSeconds"), detail));
    }
}

/// The same for ReplicationControllers, whose selector is a plain map.
pub(crate) fn validate_controller(spec: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    check::not_negative(spec, "minReadySeconds", &SPEC, errors);
    check::not_negative(spec, "replicas", &SPEC, errors);
    if json::count(spec, "/selector") == 0 {
        errors.push(FieldError::required(SPEC.field("selector"), ""));
    }
    let Some(template) = json::at(spec, "/template") else {
        errors.push(FieldError::required(SPEC.field("template"), ""));
        return;
    };
    let carried = json::at(template, "/metadata/labels").unwrap_or(&null);
    let matches =
        json::entries(spec, "/selector").all(|(key, value)| carried.get(key) == Some(value));
    selects_template(matches, carried, errors);
    validate_forever(template, "ReplicationController", errors);
}

/// Demands numbers that are not negative.
fn validate_counts(spec: &Value, errors: &mut Vec<FieldError>) {
    for key in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        check::not_negative(spec, key, &SPEC, errors);
    }
}

/// Judges the numbers in the status of a workload: none is negative, and none is more than
/// there are.
fn validate_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::Root.field("status");
    let null = Value::Null;
    let status = json::at(new, "/status").unwrap_or(&null);
    for key in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        check::not_negative(status, key, &path, errors);
    }
    let number = |key: &str| json::int(status, &format!("/{key}"));
    let mut at_most = |key: &str, most: &str, word: &str| {
        if number(key) > number(most) {
            let detail = format!("cannot be greater than {word}");
            errors.push(FieldError::invalid(path.field(key), number(key), detail));
        }
    };
    for key in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        at_most(key, "replicas", "status.replicas");
    }
    at_most("availableReplicas", "readyReplicas", "readyReplicas");
}

/// Demands the same selector as before.
fn keeps_selector(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = |object| json::at(object, "/spec").unwrap_or(&null);
    check::immutable(spec(new), spec(old), "selector", &SPEC, errors);
}

/// Columns of kinds that keep a number of like pods.
pub(crate) const REPLICA_COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired", "How many there should be"),
    Column::integer("Current", "How many there are"),
    Column::integer("Ready", "How many are ready"),
    Column::AGE,
    Column::text("Containers", "Names of its containers").wide(),
    Column::text("Images", "Images of its containers").wide(),
    Column::text("Selector", "Which pods it counts").wide(),
];

/// Cells of kinds that keep a number of like pods.
pub(crate) fn replica_cells(object: &Value, selector: String, now: Timestamp) -> Vec<Value> {
    let (names, images) = print::containers(object, "/spec/template/spec");
    vec![
        print::name(object),
        json::int(object, "/spec/replicas").into(),
        json::int(object, "/status/replicas").into(),
        json::int(object, "/status/readyReplicas").into(),
        print::age(object, now),
        names,
        images,
        selector.into(),
    ]
}
