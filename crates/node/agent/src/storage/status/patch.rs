//! How a status is written: conditions that keep their times, and merge patches of what differs.
//! Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// One condition; the time of its last change is kept while nothing changes.
pub(in crate::storage) fn condition(
    old: &Value,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    let status = if holds { "True" } else { "False" };
    let known = old.as_array().and_then(|all| all.iter().find(|it| it["type"] == kind));
    let since =
        known.filter(|it| it["status"] == status).and_then(|it| it["lastTransitionTime"].as_str());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": "",
        "lastTransitionTime": since.map_or_else(|| seconds(now), str::to_owned),
    })
}

fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// The merge patch that makes `old` say what `new` says, leaving alone what it says nothing of;
/// nothing if it does already.
pub(in crate::storage) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let fields = new.as_object()?;
    let changed = fields.iter().filter_map(|(name, value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        let patch = if value.is_object() { whole(before, value) } else { changed(before, value) };
        Some((name.clone(), patch?))
    });
    let changed: Map<String, Value> = changed.collect();
    (!changed.is_empty()).then_some(Value::Object(changed))
}

fn changed(before: &Value, value: &Value) -> Option<Value> {
    let nothing = |it: &Value| match it {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (before != value && !(nothing(before) && nothing(value))).then(|| value.clone())
}

/// Replaces a whole map: keys that are missing in the new one are removed.
fn whole(before: &Value, value: &Value) -> Option<Value> {
    if before == value {
        return None;
    }
    let (Some(old), Some(new)) = (before.as_object(), value.as_object()) else {
        let empty = before.is_null() && value.as_object().is_some_and(Map::is_empty);
        return (!empty).then(|| value.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        let change = if value.is_object() { whole(before, value) } else { changed(before, value) };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    patch.extend(gone.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_written_and_what_is_gone_is_removed() {
        let old = json!({"a": 1, "map": {"x": "RW", "y": "RW"}, "kept": true});
        let patch = |new: Value| difference(&old, &new);
        assert_eq!(patch(json!({"a": 1, "map": {"x": "RW", "y": "RW"}})), None);
        assert_eq!(patch(json!({"a": 2})), Some(json!({"a": 2})));
        assert_eq!(
            patch(json!({"map": {"x": "WO"}})),
            Some(json!({"map": {"x": "WO", "y": null}}))
        );
        assert_eq!(patch(json!({"map": {}})), Some(json!({"map": {"x": null, "y": null}})));
        assert_eq!(patch(json!({"new": {}, "text": ""})), None, "empty is as good as missing");
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = condition(&Value::Null, "Ready", true, "", "", at(1));
        let old = json!([first]);
        let same = condition(&old, "Ready", true, "", "later", at(2));
        assert_eq!(same["lastTransitionTime"], "1970-01-01T00:00:01Z");
        let other = condition(&old, "Ready", false, "Broken", "", at(2));
        assert_eq!(other["lastTransitionTime"], "1970-01-01T00:00:02Z");
    }
}
