//! The rule for `upgrade-config`. Pure; that the nodes of `pauseNodes` exist is checked on admission.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Minutes that `logReadyTimeout` may have.
const LOG_READY: std::ops::RangeInclusive<i64> = 1..=20;

pub(super) fn upgrade_config(fields: &Map<String, Value>) -> Result<(), String> {
    let empty = Value::Null;
    let field = |name: &str| fields.get(name).unwrap_or(&empty);
    let preload = &field("imagePreloadOption")["strategy"];
    let kind = preload["type"].as_str().unwrap_or_default();
    if !matches!(kind, "skip" | "sequential" | "parallel") {
        return Err(format!("invalid image preload strategy type: {kind}"));
    }
    let concurrency = &preload["concurrency"];
    if !concurrency.is_null() && concurrency.as_i64().is_none_or(|number| number < 0) {
        return Err(format!("invalid image preload concurrency: {concurrency}"));
    }
    let mode = &field("nodeUpgradeOption")["strategy"]["mode"];
    if !mode.is_null() && mode != "auto" && mode != "manual" {
        return Err(format!("invalid node upgrade strategy mode: {mode}"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = paused_nodes(fields).find(|name| !seen.insert(*name)) {
        return Err(format!("duplicate node {twice} in pauseNodes"));
    }
    let timeout = match field("logReadyTimeout") {
        Value::Null => return Ok(()),
        Value::String(text) if text.is_empty() => return Ok(()),
        Value::String(text) => text.parse::<i64>().ok(),
        other => other.as_i64(),
    };
    if timeout.is_none_or(|minutes| !LOG_READY.contains(&minutes)) {
        return Err(format!(
            "invalid logReadyTimeout {}: it must be between {} and {} minutes",
            field("logReadyTimeout"),
            LOG_READY.start(),
            LOG_READY.end()
        ));
    }
    Ok(())
}

/// The nodes that wait before they are upgraded.
pub(crate) fn paused_nodes(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let option = fields.get("nodeUpgradeOption");
    let nodes = option.and_then(|option| option["strategy"]["pauseNodes"].as_array());
    nodes.into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_has_a_strategy() {
        let preload = r#""imagePreloadOption":{"strategy":{"type":"parallel","concurrency":2}}"#;
        for (text, expected) in [
            (format!("{{{preload}}}"), ""),
            (format!(r#"{{{preload},"logReadyTimeout":"5"}}"#), ""),
            (format!(r#"{{{preload},"logReadyTimeout":"21"}}"#), "between 1 and 20 minutes"),
            (format!(r#"{{{preload},"logReadyTimeout":"x"}}"#), "between 1 and 20 minutes"),
            ("{}".to_owned(), "invalid image preload strategy type: "),
            (
                r#"{"imagePreloadOption":{"strategy":{"type":"skip","concurrency":-1}}}"#
                    .to_owned(),
                "invalid image preload concurrency: -1",
            ),
            (
                format!(r#"{{{preload},"nodeUpgradeOption":{{"strategy":{{"mode":"x"}}}}}}"#),
                "invalid node upgrade strategy mode",
            ),
            (
                format!(
                    r#"{{{preload},"nodeUpgradeOption":{{"strategy":{{"pauseNodes":["a","a"]}}}}}}"#
                ),
                "duplicate node a",
            ),
        ] {
            let fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
            let message = upgrade_config(&fields).err().unwrap_or_default();
            assert_eq!(message.is_empty(), expected.is_empty(), "{text}: {message}");
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
