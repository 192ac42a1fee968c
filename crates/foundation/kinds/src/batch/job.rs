//! Jobs.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::apps::no_runtime;
use crate::check::{self, SPEC};
use crate::resource::{Column, DefaultPropagation, Printer, Resource, Strategy, Subresource};
use crate::{duration, json, labels, podspec, print};

pub(crate) const RESOURCE: Resource = Resource {
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        prepare_create,
        validate,
        validate_update,
        validate_status: |new, _, errors| {
            let (null, path) = (Value::Null, Path::Root.field("status"));
            let status = json::at(new, "/status").unwrap_or(&null);
            for key in ["active", "succeeded", "failed", "ready", "terminating"] {
                check::not_negative(status, key, &path, errors);
            }
        },
        warnings: no_runtime,
        generation: true,
        default_propagation: DefaultPropagation::Orphan(Some(ORPHANS)),
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[("status.successful", |object| json::int(object, "/status/succeeded").to_string())],
    ..Resource::namespaced("batch", "v1", "jobs", "job", "Job")
};

/// Upstream's warning for a deletion that does not say what becomes of the pods.
const ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Labels that name a job on its pods; the short ones are from before labels had domains.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    default_spec(spec);
    label_as_template(object);
}

fn default_spec(spec: &mut Value) {
    if !json::has(spec, "/completions") && !json::has(spec, "/parallelism") {
        json::set(spec, "completions", 1);
    }
    json::fill(spec, "parallelism", 1);
    let limit = if json::has(spec, "/backoffLimitPerIndex") { i32::MAX } else { 6 };
    json::fill(spec, "backoffLimit", limit);
    json::fill(spec, "completionMode", "NonIndexed");
    json::fill(spec, "suspend", false);
    let replace =
        if json::has(spec, "/podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    json::fill(spec, "podReplacementPolicy", replace);
    json::fill(spec, "manualSelector", false);
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in json::items_mut(policy, "rules") {
            for condition in json::items_mut(rule, "onPodConditions") {
                json::fill_zero(condition, "status", "True");
            }
        }
    }
    crate::apps::default_template(spec);
}

fn prepare_create(object: &mut Value) {
    crate::status::drop(object);
    if json::flag(object, "/spec/manualSelector") {
        return;
    }
    let name = json::text(object, "/metadata/name").to_owned();
    let uid = json::text(object, "/metadata/uid").to_owned();
    let Some(spec) = json::object(object, "spec") else { return };
    if let Some(template) = json::object(spec, "template")
        && let Some(metadata) = json::object(template, "metadata")
        && let Some(labels) = json::object(metadata, "labels")
    {
        for key in NAME_LABELS {
            json::fill(labels, key, name.as_str());
        }
        for key in UID_LABELS {
            json::fill(labels, key, uid.as_str());
        }
    }
    if let Some(selector) = json::object(spec, "selector")
        && let Some(labels) = json::object(selector, "matchLabels")
    {
        json::fill(labels, UID_LABELS[1], uid);
    }
    label_as_template(object);
}

/// A job without labels has those of its pods.
fn label_as_template(object: &mut Value) {
    let carried = json::at(object, "/spec/template/metadata/labels").cloned();
    if let Some(carried) = carried
        && json::count(object, "/metadata/labels") == 0
        && let Some(metadata) = json::object(object, "metadata")
    {
        json::set(metadata, "labels", carried);
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    validate_spec(spec, &SPEC, errors);
    let path = SPEC.field("selector");
    match json::at(spec, "/selector") {
        None => errors.push(FieldError::required(path, "")),
        Some(selector) => {
            labels::validate_selector(Some(selector), &path, errors);
            let carried = json::at(spec, "/template/metadata/labels").unwrap_or(&null);
            if !labels::matches(selector, carried) {
                let template = SPEC.field("template");
                let metadata = template.field("metadata");
                let detail = "`selector` does not match template `labels`";
                let labels = metadata.field("labels");
                errors.push(FieldError::invalid(labels, carried.clone(), detail));
            }
        }
    }
}

/// Judges the spec of a job, also one in a CronJob.
pub(super) fn validate_spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        check::not_negative(spec, key, path, errors);
    }
    check::one_of(spec, "completionMode", &["NonIndexed", "Indexed"], path, errors);
    let has = |key: &str| json::has(spec, &format!("/{key}"));
    if json::text(spec, "/completionMode") == "Indexed" {
        if !has("completions") {
            let detail = "when completion mode is Indexed";
            errors.push(FieldError::required(path.field("completions"), detail));
        }
    } else {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if has(key) {
                let value = spec.get(key).cloned().unwrap_or_default();
                let detail = "requires indexed completion mode";
                errors.push(FieldError::invalid(path.field(key), value, detail));
            }
        }
    }
    if has("maxFailedIndexes") && !has("backoffLimitPerIndex") {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.field("backoffLimitPerIndex"), detail));
    }
    let replacement = &["Failed", "TerminatingOrFailed"];
    check::one_of(spec, "podReplacementPolicy", replacement, path, errors);
    validate_template(spec, path, errors);
}

fn validate_template(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let template = path.field("template");
    let null = Value::Null;
    podspec::validate_template(spec.get("template").unwrap_or(&null), &template, errors);
    let pod = template.field("spec");
    let at = pod.field("restartPolicy");
    match json::text(spec, "/template/spec/restartPolicy") {
        "" | "Always" => {
            let detail = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(at, detail));
        }
        "OnFailure" if json::has(spec, "/podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(at, "OnFailure", detail));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(at, other, &["OnFailure", "Never"])),
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let null = Value::Null;
    let (spec, before) =
        (json::at(new, "/spec").unwrap_or(&null), json::at(old, "/spec").unwrap_or(&null));
    let elastic = json::text(spec, "/completionMode") == "Indexed"
        && json::int(spec, "/completions") == json::int(spec, "/parallelism");
    let mut keys = vec![
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    if !elastic {
        keys.push("completions");
    }
    // A job that has not started may still be placed differently.
    let waiting = json::flag(before, "/suspend") && !json::has(old, "/status/startTime");
    if !waiting {
        keys.push("template");
    }
    for key in keys {
        check::immutable(spec, before, key, &SPEC, errors);
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "What became of it"),
    Column::text("Completions", "How many runs succeeded, of how many"),
    Column::text("Duration", "How long it took"),
    Column::AGE,
    Column::text("Containers", "Names of its containers").wide(),
    Column::text("Images", "Images of its containers").wide(),
    Column::text("Selector", "Which pods it counts").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = print::containers(object, "/spec/template/spec");
    vec![
        print::name(object),
        state(object).into(),
        completions(object).into(),
        length(object, now).into(),
        print::age(object, now),
        names,
        images,
        labels::show_selector(json::at(object, "/spec/selector")).into(),
    ]
}

fn state(object: &Value) -> &'static str {
    let is = |kind: &str| print::condition(object, kind) == Some("True");
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if json::has(object, "/metadata/deletionTimestamp") {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(object: &Value) -> String {
    let done = json::int(object, "/status/succeeded");
    let parallel = json::int(object, "/spec/parallelism");
    match json::int_at(object, "/spec/completions") {
        Some(wanted) => format!("{done}/{wanted}"),
        None if parallel > 1 => format!("{done}/1 of {parallel}"),
        None => format!("{done}/1"),
    }
}

fn length(object: &Value, now: Timestamp) -> String {
    let Ok(start) = json::text(object, "/status/startTime").parse::<Timestamp>() else {
        return String::new();
    };
    let end = json::text(object, "/status/completionTime").parse().unwrap_or(now);
    duration::human_duration(end.as_second() - start.as_second())
}

/// The template of a CronJob's jobs, filled in as far as upstream fills it.
pub(super) fn default_template(template: &mut Value) {
    if let Some(spec) = json::object(template, "spec") {
        crate::apps::default_template(spec);
    }
}
