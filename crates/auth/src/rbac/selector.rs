//! Label selectors of aggregation rules: what they match and what is wrong with them.

use kinds::syntax;
use schema::{FieldError, Path};
use serde_json::Value;

/// Whether `selector` chooses an object with these `labels`. An empty selector
/// chooses everything; one that cannot be understood, nothing.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    let own = |key: &str| labels.get(key).and_then(Value::as_str);
    let exact = entries(selector.get("matchLabels"));
    exact.into_iter().all(|(key, wanted)| own(key) == Some(wanted))
        && list(selector.get("matchExpressions")).iter().all(|expression| {
            let Expression { key, operator, values } = Expression::of(expression);
            let is_listed = || own(key).is_some_and(|own| values.contains(&own));
            match operator {
                "In" => is_listed(),
                "NotIn" => !is_listed() && !values.is_empty(),
                "Exists" => own(key).is_some(),
                "DoesNotExist" => own(key).is_none(),
                _ => false,
            }
        })
}

/// Adds what is wrong with `selector`.
pub(super) fn validate(selector: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let labels = path.field("matchLabels");
    for (key, value) in entries(selector.get("matchLabels")) {
        each(syntax::qualified_name(key), key, &labels, errors);
        each(syntax::label_value(value), value, &labels, errors);
    }
    let expressions = path.field("matchExpressions");
    for (index, expression) in list(selector.get("matchExpressions")).iter().enumerate() {
        validate_expression(&Expression::of(expression), &expressions.index(index), errors);
    }
}

fn validate_expression(expression: &Expression<'_>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Expression { key, operator, values } = expression;
    let path_of_values = path.field("values");
    match *operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            path_of_values,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            path_of_values,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(path.field("operator"), other, detail));
        }
    }
    each(syntax::qualified_name(key), key, &path.field("key"), errors);
    for (index, value) in values.iter().enumerate() {
        each(syntax::label_value(value), value, &path_of_values.index(index), errors);
    }
}

fn each(problems: Vec<String>, value: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    errors.extend(problems.into_iter().map(|detail| FieldError::invalid(path, value, detail)));
}

struct Expression<'a> {
    key: &'a str,
    operator: &'a str,
    values: Vec<&'a str>,
}

impl<'a> Expression<'a> {
    fn of(expression: &'a Value) -> Self {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
        let values = list(expression.get("values")).iter().filter_map(Value::as_str).collect();
        Self { key: text("key"), operator: text("operator"), values }
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: Option<&Value>) -> Vec<(&str, &str)> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_labels() {
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
    fn wrong_selectors_are_explained() {
        let selector = json!({
            "matchLabels": {"ok": "-wrong"},
            "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "Near"},
            ],
        });
        let mut errors = Vec::new();
        validate(&selector, &Path::Root.field("s"), &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "s.matchLabels",
                "s.matchExpressions[0].values",
                "s.matchExpressions[1].values",
                "s.matchExpressions[2].operator",
                "s.matchExpressions[2].key",
                "s.matchExpressions[2].key",
            ]
        );
    }
}
