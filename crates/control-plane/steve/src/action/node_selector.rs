//! The nodes that the specification of an instance permits: its node selector and its required node
//! affinity. Pure.

use serde_json::Value;

const REQUIRED: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

pub(super) fn selects(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut wanted = spec["nodeSelector"].as_object().into_iter().flatten();
    wanted.all(|(key, value)| labels[key] == *value) && meets_affinity(spec, node)
}

/// One of the terms must match; there may be none.
fn meets_affinity(spec: &Value, node: &Value) -> bool {
    let terms = spec.pointer(REQUIRED).and_then(|own| own["nodeSelectorTerms"].as_array());
    let Some(terms) = terms else { return true };
    terms.iter().any(|term| matches_term(term, node))
}

fn matches_term(term: &Value, node: &Value) -> bool {
    let list = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    let label = |own: &Value| {
        let key = own["key"].as_str().unwrap_or_default();
        matches_requirement(own, node["metadata"]["labels"][key].as_str())
    };
    let field = |own: &Value| {
        own["key"] == "metadata.name" && matches_requirement(own, node["metadata"]["name"].as_str())
    };
    let is_empty = expressions.is_empty() && fields.is_empty();
    !is_empty && expressions.iter().all(label) && fields.iter().all(field)
}

fn matches_requirement(requirement: &Value, value: Option<&str>) -> bool {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    let is_listed = value.is_some_and(|value| values.iter().any(|own| own == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let limit = number(values.first().and_then(Value::as_str));
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(limit).is_some_and(|(own, limit)| own > limit),
        "Lt" => number(value).zip(limit).is_some_and(|(own, limit)| own < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn required_affinity_decides_about_nodes() {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a", "slots": "4"}}});
        let is = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        for (terms, expected) in [
            (json!([is("zone", "In", json!(["a", "b"]))]), true),
            (json!([is("zone", "In", json!(["b"]))]), false),
            (json!([is("zone", "In", json!(["b"])), is("zone", "In", json!(["a"]))]), true),
            (json!([is("zone", "NotIn", json!(["b"]))]), true),
            (json!([is("zone", "NotIn", json!(["a"]))]), false),
            (json!([is("rack", "NotIn", json!(["a"]))]), true),
            (json!([is("rack", "Exists", json!(null))]), false),
            (json!([is("rack", "DoesNotExist", json!(null))]), true),
            (json!([is("slots", "Gt", json!(["3"]))]), true),
            (json!([is("slots", "Lt", json!(["3"]))]), false),
            (json!([is("zone", "Odd", json!(["a"]))]), false),
            (json!([named("n1")]), true),
            (json!([named("n2")]), false),
            (json!([{}]), false),
            (json!([]), false),
        ] {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}});
            let spec = json!({"affinity": {"nodeAffinity": required}});
            assert_eq!(selects(&spec, &node), expected, "{terms}");
        }
        assert!(selects(&json!({"nodeSelector": {"zone": "a"}}), &node));
        assert!(!selects(&json!({"nodeSelector": {"zone": "b"}}), &node));
        assert!(selects(&json!({}), &node));
    }
}
