//! CronJobs.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::Value;

use super::job;
use crate::apps::no_runtime;
use crate::check::{self, METADATA, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, labels, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        validate: |object, errors| {
            validate(object, errors);
            let name = json::text(object, "/metadata/name");
            if name.len() > NAME_MAX {
                let detail = crate::syntax::max_length(NAME_MAX);
                errors.push(FieldError::invalid(METADATA.field("name"), name, detail));
            }
        },
        validate_update: |new, _, errors| validate(new, errors),
        warnings: no_runtime,
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    ..Resource::namespaced("batch", "v1", "cronjobs", "cronjob", "CronJob")
};

/// Eleven characters are appended to name a job, which is a label.
const NAME_MAX: usize = 52;

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill_zero(spec, "concurrencyPolicy", "Allow");
    json::fill(spec, "suspend", false);
    json::fill(spec, "successfulJobsHistoryLimit", 3);
    json::fill(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = json::object(spec, "jobTemplate") {
        job::default_template(template);
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    if let Some(schedule) = check::required(spec, "schedule", &SPEC, errors) {
        validate_schedule(schedule, errors);
    }
    for key in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        check::not_negative(spec, key, &SPEC, errors);
    }
    if let Some(zone) = json::text_at(spec, "/timeZone") {
        validate_zone(zone, errors);
    }
    let policies = &["Allow", "Forbid", "Replace"];
    check::required_one_of(spec, "concurrencyPolicy", policies, &SPEC, errors);
    let template = SPEC.field("jobTemplate");
    let path = template.field("spec");
    let job = json::at(spec, "/jobTemplate/spec").unwrap_or(&null);
    job::validate_spec(job, &path, errors);
    if let Some(selector) = json::at(job, "/selector") {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(path.field("selector"), selector.clone(), detail));
    }
    if json::flag(job, "/manualSelector") {
        let at = path.field("manualSelector");
        errors.push(FieldError::not_supported(at, true, &["nil", "false"]));
    }
}

/// The shape of a schedule; whether it ever comes is the controller's concern.
fn validate_schedule(schedule: &str, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("schedule");
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid(path, schedule, detail));
    }
    let plain = match schedule.split_once(' ') {
        Some((zone, rest)) if zone.contains("TZ=") => rest.trim(),
        _ => schedule,
    };
    if plain.starts_with('@') {
        return;
    }
    let fields = plain.split_whitespace().count();
    if fields != 5 {
        let given: Vec<&str> = plain.split_whitespace().collect();
        let detail = format!("expected exactly 5 fields, found {fields}: [{}]", given.join(" "));
        errors.push(FieldError::invalid(path, schedule, detail));
    }
}

fn validate_zone(zone: &str, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("timeZone");
    let fits = |char: char| char.is_ascii_alphanumeric() || "-+_.".contains(char);
    let is_part = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part.chars().all(fits)
    };
    if zone.is_empty() {
        let detail = "timeZone must be nil or non-empty string";
        errors.push(FieldError::invalid(path, zone, detail));
    } else if !zone.split('/').all(is_part) {
        errors.push(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    } else if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in \
                      https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, detail));
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Schedule", "When it runs"),
    Column::text("Timezone", "Whose clock that means"),
    Column::boolean("Suspend", "Whether it is paused"),
    Column::integer("Active", "How many jobs run"),
    Column::text("Last Schedule", "When it last ran"),
    Column::AGE,
    Column::text("Containers", "Names of its containers").wide(),
    Column::text("Images", "Images of its containers").wide(),
    Column::text("Selector", "Which pods it counts").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let suspended = match json::at(object, "/spec/suspend") {
        None => "<unset>",
        Some(Value::Bool(true)) => "True",
        Some(_) => "False",
    };
    let last = match json::has(object, "/status/lastScheduleTime") {
        true => print::since(object, "/status/lastScheduleTime", now),
        false => "<none>".to_owned(),
    };
    let (names, images) = print::containers(object, "/spec/jobTemplate/spec/template/spec");
    vec![
        print::name(object),
        json::text(object, "/spec/schedule").into(),
        print::text_or(object, "/spec/timeZone", "<none>"),
        suspended.into(),
        json::count(object, "/status/active").into(),
        last.into(),
        print::age(object, now),
        names,
        images,
        labels::show_selector(json::at(object, "/spec/jobTemplate/spec/selector")).into(),
    ]
}
