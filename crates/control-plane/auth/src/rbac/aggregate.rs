//! Roles that are the sum of others: which rules an aggregated ClusterRole should have.

use kinds::labels;
use serde_json::Value;

use super::policy::name;
use super::rule::PolicyRule;

/// The rules that `role` should have, given `all` cluster roles; `None` if it is not
/// aggregated or has exactly these already.
///
/// They come selector by selector, then by role name, each rule once.
pub fn aggregate<'a>(
    role: &Value,
    all: impl IntoIterator<Item = &'a Value>,
) -> Option<Vec<PolicyRule>> {
    let selectors = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let selectors = selectors.get("clusterRoleSelectors").and_then(Value::as_array);
    let mut others: Vec<&Value> =
        all.into_iter().filter(|other| name(other) != name(role)).collect();
    others.sort_by_key(|other| name(other));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for wanted in selectors.into_iter().flatten() {
        let chosen = others.iter();
        let chosen = chosen.filter(|other| labels::matches(wanted, &other["metadata"]["labels"]));
        for rule in chosen.flat_map(|other| PolicyRule::list(other)) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    (rules != PolicyRule::list(role)).then_some(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, resources: &[&str]) -> Value {
        let rules: Vec<Value> = resources
            .iter()
            .map(|resource| json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]}))
            .collect();
        json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules})
    }

    fn sum(selectors: Value, rules: Value) -> Value {
        json!({"metadata": {"name": "sum", "labels": {"to-a": "true"}}, "rules": rules,
            "aggregationRule": {"clusterRoleSelectors": selectors}})
    }

    fn resources(rules: Option<Vec<PolicyRule>>) -> Option<Vec<String>> {
        rules.map(|rules| rules.into_iter().flat_map(|rule| rule.resources).collect())
    }

    #[test]
    fn rules_are_gathered_in_order_and_once() {
        let a = json!({"matchLabels": {"to-a": "true"}});
        let b = json!({"matchExpressions": [{"key": "to-b", "operator": "Exists"}]});
        let sum = sum(json!([a, b]), Value::Null);
        let all = [
            role("z", "to-a", &["pods", "nodes"]),
            role("c", "to-a", &["pods"]),
            role("b", "to-b", &["secrets"]),
            role("d", "other", &["events"]),
            sum.clone(),
        ];
        let gathered = resources(aggregate(&sum, &all)).unwrap();
        assert_eq!(gathered, ["pods", "nodes", "secrets"]);
    }

    #[test]
    fn a_role_that_is_right_or_not_aggregated_stays() {
        let selectors = json!([{"matchLabels": {"to-a": "true"}}]);
        let part = role("c", "to-a", &["pods"]);
        let settled = sum(selectors.clone(), part["rules"].clone());
        assert_eq!(aggregate(&settled, [&part]), None);
        assert_eq!(aggregate(&part, [&settled]), None);
        // Nothing to gather any more: the old rules must go.
        let lonely = sum(selectors, part["rules"].clone());
        assert_eq!(aggregate(&lonely, []), Some(vec![]));
    }
}
