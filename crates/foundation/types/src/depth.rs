//! How deeply a JSON value nests.

use serde_json::Value;

/// The number of lists and objects around the innermost value. Stops counting (and
/// recursing) one beyond `most`.
pub(crate) fn depth(value: &Value, most: usize) -> usize {
    let inner = |value: &Value| match most.checked_sub(1) {
        Some(left) => depth(value, left),
        None => 0,
    };
    match value {
        Value::Array(items) => 1 + items.iter().map(inner).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(inner).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_counts_the_longest_branch_up_to_one_beyond_the_bound() {
        assert_eq!(depth(&json!(1), 5), 0);
        assert_eq!(depth(&json!({}), 5), 1);
        assert_eq!(depth(&json!({"a": [], "b": {"c": [1]}}), 5), 3);
        assert_eq!(depth(&json!([[[[[[]]]]]]), 2), 3);
    }
}
