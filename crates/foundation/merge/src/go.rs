//! Values as upstream's messages show them.

use serde_json::Value;

/// A value as Go's `%v` prints it.
pub(crate) fn go_print(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(go_print).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{key}:{}", go_print(value)));
            format!("map[{}]", joined(fields.collect()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_does() {
        for (value, expected) in [
            (json!({"b": {"c": null}, "a": [1, "x", true]}), "map[a:[1 x true] b:map[c:<nil>]]"),
            (json!("many"), "many"),
        ] {
            assert_eq!(go_print(&value), expected);
        }
    }
}
