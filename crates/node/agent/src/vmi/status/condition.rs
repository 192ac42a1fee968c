//! The list of conditions: what stays as it is keeps its times, what others wrote stays.

use serde_json::{Value, json};

/// The order in which upstream's come about, which people's eyes are used to.
const ORDER: &[&str] = &[
    "Ready",
    "LiveMigratable",
    "StorageLiveMigratable",
    "DataVolumesReady",
    "AgentConnected",
    "AgentVersionNotSupported",
    "AccessCredentialsSynchronized",
    "Paused",
    "VolumesChange",
    "Synchronized",
];

pub(super) struct Conditions {
    list: Vec<Value>,
    now: String,
}

impl Conditions {
    pub(super) fn new(have: &Value, now: String) -> Self {
        Self { list: have.as_array().cloned().unwrap_or_default(), now }
    }

    pub(super) fn yes(&mut self, kind: &str) {
        self.set(kind, "True", "", "");
    }

    pub(super) fn because(&mut self, kind: &str, reason: &str, message: &str) {
        self.set(kind, "True", reason, message);
    }

    pub(super) fn no(&mut self, kind: &str, reason: &str, message: &str) {
        self.set(kind, "False", reason, message);
    }

    /// True since a request got an answer.
    pub(super) fn probed(&mut self, kind: &str) {
        if self.set(kind, "True", "", "") {
            let now = Value::from(self.now.clone());
            let found = self.list.iter_mut().find(|each| each["type"] == kind);
            found.expect("it was set above")["lastProbeTime"] = now;
        }
    }

    pub(super) fn remove(&mut self, kind: &str) {
        self.list.retain(|each| each["type"] != kind);
    }

    pub(super) fn finish(mut self) -> Value {
        let rank = |condition: &Value| {
            let kind = condition["type"].as_str().unwrap_or_default();
            ORDER.iter().position(|each| *each == kind).unwrap_or(ORDER.len())
        };
        self.list.sort_by_key(rank);
        self.list.into()
    }

    /// Whether anything changed.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let text = |condition: &Value, field: &str| {
            condition[field].as_str().unwrap_or_default().to_owned()
        };
        let found = self.list.iter().position(|each| each["type"] == kind);
        let before = found.map(|index| &self.list[index]);
        let same = before.is_some_and(|before| {
            text(before, "status") == status
                && text(before, "reason") == reason
                && text(before, "message") == message
        });
        if same {
            return false;
        }
        let since = before
            .filter(|before| text(before, "status") == status)
            .map_or_else(|| self.now.clone(), |before| text(before, "lastTransitionTime"));
        let mut condition = json!({
            "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
        });
        for (field, value) in [("reason", reason), ("message", message)] {
            if !value.is_empty() {
                condition[field] = value.into();
            }
        }
        match found {
            Some(index) => self.list[index] = condition,
            None => self.list.push(condition),
        }
        true
    }
}
