//! Lists of conditions: set, remove, look up. The time of a condition is that of its last
//! change of status.

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{list, text};

/// A condition to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(kind: &'static str, status: &'static str) -> Self {
        Self { kind, status, reason: String::new(), message: String::new() }
    }

    pub(crate) fn because(mut self, reason: &str, message: impl Into<String>) -> Self {
        self.reason = reason.to_owned();
        self.message = message.into();
        self
    }
}

/// The conditions in `status` of an object.
pub(crate) fn of(object: &Value) -> Vec<Value> {
    list(object, "/status/conditions").to_vec()
}

pub(crate) fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|own| text(own, "/type") == kind)
}

/// Whether the object has this condition with this status.
pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    find(list(object, "/status/conditions"), kind).is_some_and(|own| text(own, "/status") == status)
}

pub(crate) fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|own| text(own, "/type") != kind);
}

/// Adds the condition, or brings the one of its type up to date in its place.
pub(crate) fn set(conditions: &mut Vec<Value>, wanted: &Condition, now: Timestamp) {
    let old = conditions.iter_mut().find(|own| text(own, "/type") == wanted.kind);
    let since = old.as_ref().filter(|old| text(old, "/status") == wanted.status);
    let since = since.map(|old| text(old, "/lastTransitionTime")).filter(|time| !time.is_empty());
    let since = since.map_or_else(|| clock::rfc3339(now), str::to_owned);
    let mut new =
        json!({"type": wanted.kind, "status": wanted.status, "lastTransitionTime": since});
    for (field, value) in [("reason", &wanted.reason), ("message", &wanted.message)] {
        if !value.is_empty() {
            new[field] = json!(value);
        }
    }
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_changes_with_the_status_only() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(&mut conditions, &Condition::new("Ready", "False").because("A", "a"), at(0));
        set(&mut conditions, &Condition::new("Other", "True"), at(1));
        set(&mut conditions, &Condition::new("Ready", "False").because("B", "b"), at(2));
        assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(conditions[0]["reason"], "B");
        set(&mut conditions, &Condition::new("Ready", "True"), at(3));
        assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:00:03Z");
        assert_eq!(conditions[0].get("reason"), None);
        remove(&mut conditions, "Ready");
        assert_eq!(conditions.len(), 1);
    }
}
