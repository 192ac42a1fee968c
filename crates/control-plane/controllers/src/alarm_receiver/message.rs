//! Messages to receivers in the formats that they understand: pure.

use std::fmt::Write as _;

use hci::alarm::{AlarmObject, AnnouncedAlarm};
use serde_json::{Value, json};

/// A request to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmMessage {
    pub url: String,
    /// Names and values; all ASCII.
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// Alarms that a text names one by one; the others are counted.
const MOST_LINES: usize = 20;
const JSON: &str = "application/json";
/// Alertmanager's time for an alert that has not ended.
const NOT_ENDED: &str = "0001-01-01T00:00:00Z";

/// The content of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct AlarmReport<'a> {
    pub(super) receiver: &'a str,
    pub(super) firing: &'a [AnnouncedAlarm],
    pub(super) resolved: &'a [AnnouncedAlarm],
    pub(super) now: &'a str,
}

/// The alarm of a test message, which concerns the receiver itself.
pub(super) fn test_alarm(receiver: &str, now: &str) -> AnnouncedAlarm {
    AnnouncedAlarm {
        name: "test".into(),
        uid: format!("test-{receiver}"),
        rule: "Test".into(),
        severity: "warning".into(),
        object: AlarmObject {
            api_version: "sheaf.io/v1".into(),
            kind: "AlarmReceiver".into(),
            namespace: None,
            name: receiver.into(),
        },
        summary: format!("Test message to the alarm receiver {receiver}: nothing is wrong"),
        reason: None,
        remedy: None,
        since: now.into(),
    }
}

pub(super) fn message(format: &str, url: String, report: &AlarmReport<'_>) -> AlarmMessage {
    let content = |kind: &str| ("content-type", kind.to_owned());
    match format {
        "slack" => {
            let body = json!({"text": escaped(&text(report))}).to_string();
            AlarmMessage { url, headers: vec![content(JSON)], body }
        }
        "ntfy" => {
            let mut headers = vec![content("text/plain; charset=utf-8")];
            headers.push(("title", title(report)));
            let is_critical = report.firing.iter().any(|alarm| alarm.severity == "critical");
            let (priority, tag) = match (is_critical, report.firing.is_empty()) {
                (true, _) => ("urgent", "rotating_light"),
                (false, false) => ("high", "warning"),
                (false, true) => ("default", "white_check_mark"),
            };
            headers.extend([("priority", priority.to_owned()), ("tags", tag.to_owned())]);
            AlarmMessage { url, headers, body: text(report) }
        }
        _ => {
            let body = alertmanager(report).to_string();
            AlarmMessage { url, headers: vec![content(JSON)], body }
        }
    }
}

fn title(report: &AlarmReport<'_>) -> String {
    match (report.firing.len(), report.resolved.len()) {
        (0, 1) => "Sheaf: alarm ended".into(),
        (0, ended) => format!("Sheaf: {ended} alarms ended"),
        (1, _) => "Sheaf: alarm".into(),
        (new, _) => format!("Sheaf: {new} alarms"),
    }
}

fn text(report: &AlarmReport<'_>) -> String {
    let mut out = String::new();
    for alarm in report.firing.iter().take(MOST_LINES) {
        let _ = write!(out, "[{}] {}", alarm.severity, alarm.summary);
        if let Some(reason) = &alarm.reason {
            let _ = write!(out, ": {reason}");
        }
        out.push('\n');
        if let Some(remedy) = &alarm.remedy {
            let _ = writeln!(out, "  {remedy}");
        }
    }
    let room = MOST_LINES.saturating_sub(report.firing.len());
    for alarm in report.resolved.iter().take(room) {
        let _ = writeln!(out, "[ended] {}", alarm.summary);
    }
    let all = report.firing.len() + report.resolved.len();
    if all > MOST_LINES {
        let _ = writeln!(out, "and {} more: sheaf alarm list", all - MOST_LINES);
    }
    out.trim_end().to_owned()
}

/// Slack reads `&`, `<` and `>` as its own marks.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Version 4 of the webhook of Prometheus' Alertmanager.
fn alertmanager(report: &AlarmReport<'_>) -> Value {
    let firing = report.firing.iter().map(|alarm| alert(alarm, "firing", NOT_ENDED));
    let resolved = report.resolved.iter().map(|alarm| alert(alarm, "resolved", report.now));
    let alerts: Vec<Value> = firing.chain(resolved).collect();
    json!({
        "version": "4", "groupKey": "sheaf", "truncatedAlerts": 0, "receiver": report.receiver,
        "status": if report.firing.is_empty() { "resolved" } else { "firing" },
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "",
        "alerts": alerts,
    })
}

fn alert(alarm: &AnnouncedAlarm, status: &str, end: &str) -> Value {
    let mut labels = json!({
        "alertname": alarm.rule, "severity": alarm.severity, "alarm": alarm.name,
        "kind": alarm.object.kind, "name": alarm.object.name,
    });
    if let Some(namespace) = &alarm.object.namespace {
        labels["namespace"] = json!(namespace);
    }
    let mut annotations = json!({"summary": alarm.summary});
    for (key, value) in [("description", &alarm.reason), ("remedy", &alarm.remedy)] {
        if let Some(value) = value {
            annotations[key] = json!(value);
        }
    }
    json!({
        "status": status, "labels": labels, "annotations": annotations, "startsAt": alarm.since,
        "endsAt": end, "generatorURL": "", "fingerprint": alarm.uid,
    })
}
