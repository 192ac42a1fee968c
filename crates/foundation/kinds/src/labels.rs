//! Labels and label selectors inside objects: their rules, and how they are shown.
//!
//! Selectors in query strings are the API server's; these are the `LabelSelector`
//! fields of kinds.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::{check, json, syntax};

/// Judges a map of labels.
pub(crate) fn validate(labels: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        check::each(syntax::qualified_name(key), key, path, errors);
        let value = value.as_str().unwrap_or_default();
        check::each(syntax::label_value(value), value, path, errors);
    }
}

/// Judges a `LabelSelector`.
pub fn validate_selector(selector: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    validate(selector.get("matchLabels"), &path.field("matchLabels"), errors);
    let list = path.field("matchExpressions");
    for (index, requirement) in json::list(selector, "/matchExpressions").iter().enumerate() {
        validate_requirement(requirement, &list.index(index), errors);
    }
}

fn validate_requirement(requirement: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let values = json::texts(requirement, "/values");
    match json::text(requirement, "/operator") {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            path.field("values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            path.field("values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(FieldError::invalid(
            path.field("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = json::text(requirement, "/key");
    check::each(syntax::qualified_name(key), key, &path.field("key"), errors);
    let list = path.field("values");
    for (index, value) in values.iter().enumerate() {
        check::each(syntax::label_value(value), value, &list.index(index), errors);
    }
}

/// Whether a selector is given but asks for nothing.
pub(crate) fn is_empty_selector(selector: &Value) -> bool {
    json::count(selector, "/matchLabels") + json::count(selector, "/matchExpressions") == 0
}

/// Whether `selector` chooses something that carries `labels`. An empty one chooses
/// everything; one that cannot be understood, nothing.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let value = |key: &str| labels.get(key).and_then(Value::as_str);
    json::entries(selector, "/matchLabels").all(|(key, want)| value(key) == want.as_str())
        && json::list(selector, "/matchExpressions").iter().all(|requirement| {
            let has = value(json::text(requirement, "/key"));
            let listed = has.is_some_and(|has| json::texts(requirement, "/values").contains(&has));
            match json::text(requirement, "/operator") {
                "In" => listed,
                "NotIn" => !listed && json::count(requirement, "/values") > 0,
                "Exists" => has.is_some(),
                "DoesNotExist" => has.is_none(),
                _ => false,
            }
        })
}

/// A map as `a=b,c=d`, or `<none>`.
pub(crate) fn format_map(map: Option<&Value>) -> String {
    let pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector` in the syntax of query strings; empty when it chooses all or nothing.
pub(crate) fn format_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let mut parts: Vec<(String, String)> = json::entries(selector, "/matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for requirement in json::list(selector, "/matchExpressions") {
        let key = json::text(requirement, "/key").to_owned();
        let mut values = json::texts(requirement, "/values");
        values.sort_unstable();
        let values = values.join(",");
        let text = match json::text(requirement, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        parts.push((key, text));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// The same, with `<none>` for nothing.
pub(crate) fn show_selector(selector: Option<&Value>) -> String {
    match format_selector(selector) {
        text if text.is_empty() => "<none>".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_shown_sorted_by_key() {
        let selector = json!({
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "a", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(format_selector(Some(&selector)), "!a,b=1,c in (x,y)");
        assert_eq!(show_selector(None), "<none>");
        assert!(matches(&selector, &json!({"b": "1", "c": "x"})));
        assert!(!matches(&selector, &json!({"a": "", "b": "1", "c": "x"})));
    }

    #[test]
    fn selectors_choose_by_labels() {
        let labels = json!({"a": "1", "b": "2"});
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "b": "3"}}), false),
            (json!({"matchLabels": {"c": ""}}), false),
            (expression("a", "In", &["1", "9"]), true),
            (expression("a", "In", &["9"]), false),
            (expression("c", "In", &["9"]), false),
            (expression("a", "NotIn", &["9"]), true),
            (expression("a", "NotIn", &["1"]), false),
            (expression("c", "NotIn", &["1"]), true),
            (expression("c", "NotIn", &[]), false),
            (expression("a", "Exists", &[]), true),
            (expression("c", "Exists", &[]), false),
            (expression("c", "DoesNotExist", &[]), true),
            (expression("a", "DoesNotExist", &[]), false),
            (expression("a", "Near", &["1"]), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn wrong_requirements_are_named() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Near"},
        ]});
        let mut errors = Vec::new();
        validate_selector(Some(&selector), &Path::Root.field("s"), &mut errors);
        expect_test::expect![[r#"
            s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            s.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
            s.matchExpressions[2].operator: Invalid value: "Near": not a valid selector operator"#]]
        .assert_eq(&errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
}
