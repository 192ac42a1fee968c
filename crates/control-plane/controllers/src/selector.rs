//! Whether labels are selected: label selectors of objects and selectors of nodes.
//!
//! A requirement with an operator that is not known selects nothing.

use serde_json::Value;

use crate::object::{entries, list, name, text};

/// A `LabelSelector`; none at all selects nothing, an empty one everything.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    selector.is_object()
        && contains(selector.get("matchLabels").unwrap_or(&Value::Null), labels)
        && list(selector, "/matchExpressions").iter().all(|own| holds(own, labels))
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
    let labels = node.pointer("/metadata/labels").unwrap_or(&Value::Null);
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

fn holds(requirement: &Value, labels: &Value) -> bool {
    let label = labels.get(text(requirement, "/key")).and_then(Value::as_str);
    let values = list(requirement, "/values");
    let listed = label.is_some_and(|label| values.iter().any(|value| value == label));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(label?)?, number(values.first()?.as_str()?)?));
    match text(requirement, "/operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => compared().is_some_and(|(own, bound)| own > bound),
        "Lt" => compared().is_some_and(|(own, bound)| own < bound),
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
        }
        assert!(matches(&json!({}), &labels) && !matches(&Value::Null, &labels));
        assert!(!matches(&json!({"matchLabels": {"a": "2"}}), &labels));
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
