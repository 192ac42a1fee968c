//! Longhorn's recurring jobs: the defaults and the validation of its webhooks.

use crd::schedule::Schedule;
use serde_json::{Value, json};

use super::longhorn::read;
use super::{AdmissionResult, Refusal, Write, text};
use crate::longhorn::NAMESPACE;
use crate::longhorn::job::{RecurringJob, RecurringJobSpec};

const COUNT_BASED: &str = "count-based";
const AGE_BASED: &str = "age-based";
const DEFAULT_CONCURRENCY: i32 = 10;
const MAX_RETENTION: &str = "recurring-job-max-retention";
/// Longhorn's limit for the names of its objects.
const LONGEST_NAME: usize = 40;
const RESERVED_LABELS: [&str; 2] = ["KubernetesStatus", "ranchervm-base-image"];

/// Sets the defaults of a job.
pub(super) fn complete(name: &str, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let is_empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(value) => value == "" || value == 0,
    };
    for (field, value) in [
        ("name", json!(name)),
        ("groups", json!([])),
        ("labels", json!({})),
        ("parameters", json!({})),
        ("concurrency", json!(DEFAULT_CONCURRENCY)),
        ("retentionPolicy", json!(COUNT_BASED)),
    ] {
        if is_empty(spec.get(field)) {
            spec.insert(field.to_owned(), value);
        }
    }
    let retain = spec.get("retain").and_then(Value::as_i64).unwrap_or_default();
    let retain = match spec.get("task").and_then(Value::as_str).unwrap_or_default() {
        "snapshot-cleanup" | "filesystem-trim" => 0,
        "snapshot-delete" => retain.max(0),
        _ => retain.max(1),
    };
    spec.insert("retain".to_owned(), json!(retain));
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    if write.object.is_none() {
        return Ok(());
    }
    let job: RecurringJob = read(write.object);
    let spec = job.spec.unwrap_or_default();
    let refuse = |field, message: String| Err(Refusal::longhorn(field, message));
    if write.old.is_none() && !is_name(write.name, |c| c.is_ascii_lowercase()) {
        return refuse("metadata.name", format!("invalid name {}", write.name));
    }
    let most = max_retention(write);
    if i64::from(spec.retain.unwrap_or_default()) > most {
        let message = format!("retain value should be less than or equal to {most}");
        return refuse("spec.retain", message);
    }
    match complaint(&spec) {
        Some((field, message)) => refuse(field, message),
        None => Ok(()),
    }
}

fn max_retention(write: &Write<'_>) -> i64 {
    let found = write.objects.get("longhorn.io", "settings", NAMESPACE, MAX_RETENTION);
    let value = found.as_ref().and_then(|setting| text(setting, "/value").parse().ok());
    value.unwrap_or(100)
}

/// The first field that is wrong, in Longhorn's order.
fn complaint(spec: &RecurringJobSpec) -> Option<(&'static str, String)> {
    let word = |field: &Option<String>| field.clone().unwrap_or_default();
    let (name, task, cron) = (word(&spec.name), word(&spec.task), word(&spec.cron));
    if let Some(message) = retention_complaint(spec, &task) {
        return Some(message);
    }
    for (field, value) in [("spec.cron", &cron), ("spec.task", &task), ("spec.name", &name)] {
        if value.is_empty() {
            let what = field.trim_start_matches("spec.");
            return Some((field, format!("invalid job {name}: {what} must not be empty")));
        }
    }
    if let Err(why) = Schedule::parse(&cron) {
        return Some(("spec.cron", format!("invalid cron format({cron}): {why}")));
    }
    if name.len() > LONGEST_NAME {
        let message = format!("job name {name} must be {LONGEST_NAME} characters or less");
        return Some(("spec.name", message));
    }
    let concurrency = spec.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
    if concurrency < 1 {
        let message = format!("recurring job concurrency {concurrency} must be greater than 0");
        return Some(("spec.concurrency", message));
    }
    let wrong = spec.groups.iter().find(|group| !is_name(group, |c| c.is_ascii_alphabetic()));
    if let Some(group) = wrong {
        return Some(("spec.groups", format!("invalid group name {group}")));
    }
    label_complaint(spec)
}

fn retention_complaint(spec: &RecurringJobSpec, task: &str) -> Option<(&'static str, String)> {
    let keeps = !matches!(task, "snapshot-cleanup" | "filesystem-trim" | "snapshot-delete");
    let age = spec.retain_age.as_deref().unwrap_or_default();
    if age.starts_with('-') {
        return Some(("spec.retainAge", "retainAge should not be negative".to_owned()));
    }
    let retain = spec.retain.unwrap_or_default();
    match spec.retention_policy.as_deref().unwrap_or_default() {
        COUNT_BASED if keeps && retain <= 0 => {
            let message = format!("recurring job retain count {retain} must be greater than 0");
            Some(("spec.retain", message))
        }
        COUNT_BASED => None,
        AGE_BASED if !keeps => {
            let message = format!(
                "recurring job retention policy {AGE_BASED} can not be used with task {task}"
            );
            Some(("spec.retentionPolicy", message))
        }
        AGE_BASED => None,
        _ => {
            let message = format!("retentionPolicy should be {COUNT_BASED} or {AGE_BASED}");
            Some(("spec.retentionPolicy", message))
        }
    }
}

fn label_complaint(spec: &RecurringJobSpec) -> Option<(&'static str, String)> {
    for (key, value) in &spec.labels {
        if let Some(why) = kinds::syntax::qualified_name(key).first() {
            let message = format!(
                "at least one error encountered while validating backup label with key {key}: {why}"
            );
            return Some(("spec.labels", message));
        }
        if value.is_empty() {
            let message = format!("value for label with key {key} cannot be empty");
            return Some(("spec.labels", message));
        }
        if RESERVED_LABELS.contains(&key.as_str()) {
            let message =
                format!("specified snapshot backup labels contain reserved keyword {key}");
            return Some(("spec.labels", message));
        }
    }
    None
}

/// Longhorn's pattern for names: a letter or digit, then at least one more of those or `_.-`.
fn is_name(name: &str, is_letter: impl Fn(char) -> bool) -> bool {
    let plain = |c: char| is_letter(c) || c.is_ascii_digit();
    let mut all = name.chars();
    all.next().is_some_and(plain)
        && name.len() > 1
        && all.all(|c| plain(c) || matches!(c, '_' | '.' | '-'))
}
