//! Whether labels are selected: label selectors of objects and selectors of nodes.
//!
//! A requirement with an operator that is not known selects nothing.

use serde_json::Value;
use virt::api::atom::LabelSelector;

use crate::object::{entries, labels, list, name, strings, text};

/// A `LabelSelector`; none at all selects nothing, an empty one everything.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    selector.is_object()
        && contains(selector.get("matchLabels").unwrap_or(&Value::Null), labels)
        && list(selector, "/matchExpressions").iter().all(|own| holds(own, labels))
}

/// The same as a record.
pub(crate) fn selects(selector: &LabelSelector, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    selector.match_labels.iter().all(|(key, value)| label(key) == Some(value))
        && selector.match_expressions.iter().all(|own| {
            let values = own.values.iter().map(String::as_str);
            is_met(&own.key, &own.operator, values, labels)
        })
}

/// A plain map of labels, all of which must be there.
pub(crate) fn contains(wanted: &Value, labels: &Value) -> bool {
    entries(wanted, "").all(|(key, value)| labels.get(key) == Some(value))
}

/// A `NodeSelector`: one of its terms must hold, and a term without requirements does not.
pub(crate) fn matches_node(selector: &Value, node: &Value) -> bool {
    list(selector, "/nodeSelectorTerms").iter().any(|term| matches_node_term(term, node))
}

pub(crate) fn matches_node_term(term: &Value, node: &Value) -> bool {
    let labels = labels(node);
    let (expressions, fields) = (list(term, "/matchExpressions"), list(term, "/matchFields"));
    let named = |field: &Value| {
        let listed = list(field, "/values").iter().any(|value| value == name(node));
        text(field, "/key") == "metadata.name"
            && match text(field, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|own| holds(own, labels))
        && fields.iter().all(named)
}

/// One requirement, of a label selector or of a node selector.
pub(crate) fn holds(requirement: &Value, labels: &Value) -> bool {
    let (key, operator) = (text(requirement, "/key"), text(requirement, "/operator"));
    is_met(key, operator, strings(requirement, "/values"), labels)
}

fn is_met<'a>(
    key: &str,
    operator: &str,
    mut values: impl Iterator<Item = &'a str>,
    labels: &Value,
) -> bool {
    let label = labels.get(key).and_then(Value::as_str);
    let mut listed = || label.is_some_and(|label| values.any(|value| value == label));
    let number = |text: &str| text.parse::<i64>().ok();
    match operator {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" | "Lt" => {
            let (own, bound) = (label.and_then(number), values.next().and_then(number));
            let compared = own.zip(bound);
            compared.is_some_and(
                |(own, bound)| if operator == "Gt" { own > bound } else { own < bound },
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_select_by_their_operator() {
        let labels = json!({"a": "1", "b": "x"});
        for (operator, key, values, expected) in [
            ("In", "b", json!(["x", "y"]), true),
            ("In", "c", json!(["x"]), false),
            ("NotIn", "b", json!(["y"]), true),
            ("NotIn", "c", json!(["x"]), true),
            ("Exists", "a", json!([]), true),
            ("DoesNotExist", "a", json!([]), false),
            ("Gt", "a", json!(["0"]), true),
            ("Lt", "a", json!(["0"]), false),
            ("Gt", "b", json!(["0"]), false),
            ("Like", "a", json!(["1"]), false),
        ] {
            let requirement = json!({"key": key, "operator": operator, "values": values});
            let selector = json!({"matchExpressions": [requirement]});
            assert_eq!(matches(&selector, &labels), expected, "{operator} {key}");
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(selects(&selector, &labels), expected, "{operator} {key}");
        }
        assert!(matches(&json!({}), &labels) && !matches(&Value::Null, &labels));
        for (value, expected) in [("1", true), ("2", false)] {
            let selector = json!({"matchLabels": {"a": value}});
            assert_eq!(matches(&selector, &labels), expected);
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(selects(&selector, &labels), expected);
        }
    }

    #[test]
    fn a_node_is_selected_by_one_of_the_terms() {
        let node = json!({"metadata": {"name": "one", "labels": {"zone": "z"}}});
        let by_name = |name: &str| {
            json!({"matchFields": [{"key": "metadata.name",
            "operator": "In", "values": [name]}]})
        };
        let by_label = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]});
        let check = |terms: Value| matches_node(&json!({"nodeSelectorTerms": terms}), &node);
        assert!(check(json!([by_name("two"), by_label])));
        assert!(check(json!([by_name("one")])) && !check(json!([by_name("two")])));
        assert!(!check(json!([{}])) && !check(json!([])));
    }
}
