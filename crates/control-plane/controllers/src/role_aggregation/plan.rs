//! Which rules an aggregated ClusterRole should have: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

/// Roles whose rules are not what they gather, with what they should be.
pub(crate) fn stale(roles: &[ClusterRole]) -> Vec<(String, Vec<PolicyRule>)> {
    let mut sorted: Vec<&ClusterRole> = roles.iter().collect();
    sorted.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let wrong = |role: &&ClusterRole| {
        let rules = gathered(role, &sorted)?;
        let name = role.metadata.name.clone()?;
        (rules != role.rules.clone().unwrap_or_default()).then_some((name, rules))
    };
    sorted.iter().filter_map(wrong).collect()
}

/// The object that is applied: only the rules, so that all other fields stay the user's.
pub(crate) fn apply(name: &str, rules: &[PolicyRule]) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules})
}

/// The rules of all selected roles, each once, selector by selector in order of names;
/// nothing if the role does not gather.
fn gathered(role: &ClusterRole, sorted: &[&ClusterRole]) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.clone();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.unwrap_or_default() {
        for other in sorted {
            let labels = other.metadata.labels.clone().unwrap_or_default();
            if other.metadata.name == role.metadata.name || !selects(&selector, &labels) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    exact.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|own| {
            let value = labels.get(&own.key);
            let among = |value: &String| own.values.iter().flatten().any(|own| own == value);
            match &*own.operator {
                "In" => value.is_some_and(among),
                "NotIn" => !value.is_some_and(among),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: Value, rules: &[&str]) -> ClusterRole {
        let rules: Vec<Value> = rules.iter().map(|verb| json!({"verbs": [verb]})).collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
            "rules": rules}))
        .unwrap()
    }

    fn gathering(name: &str, selectors: Value, rules: &[&str]) -> ClusterRole {
        let mut role = role(name, json!({"to": "admin"}), rules);
        let rule = json!({"clusterRoleSelectors": selectors});
        role.aggregation_rule = serde_json::from_value(rule).unwrap();
        role
    }

    /// `name: verbs` of each role that has to change.
    fn changes(roles: &[ClusterRole]) -> Vec<String> {
        let verbs = |rules: Vec<PolicyRule>| {
            rules.into_iter().flat_map(|rule| rule.verbs).collect::<Vec<_>>().join(" ")
        };
        stale(roles).into_iter().map(|(name, rules)| format!("{name}: {}", verbs(rules))).collect()
    }

    #[test]
    fn rules_are_gathered_once_in_order_of_names_and_not_from_itself() {
        let roles = [
            gathering("all", json!([{"matchLabels": {"to": "admin"}}]), &["own"]),
            role("b", json!({"to": "admin"}), &["get", "list"]),
            role("a", json!({"to": "admin"}), &["list", "watch"]),
            role("c", json!({"to": "other"}), &["delete"]),
        ];
        assert_eq!(changes(&roles), ["all: list watch get"]);
    }

    #[test]
    fn selectors_add_up_in_their_order() {
        let selectors = json!([{"matchLabels": {"to": "b"}},
            {"matchExpressions": [{"key": "to", "operator": "In", "values": ["a", "b"]}]}]);
        let roles = [
            gathering("all", selectors, &[]),
            role("a", json!({"to": "a"}), &["get"]),
            role("b", json!({"to": "b"}), &["list"]),
        ];
        assert_eq!(changes(&roles), ["all: list get"]);
    }

    #[test]
    fn correct_roles_are_not_written() {
        let roles = [
            gathering("all", json!([{"matchLabels": {"to": "x"}}]), &["get"]),
            role("a", json!({"to": "x"}), &["get"]),
        ];
        assert_eq!(changes(&roles), [""; 0]);
    }

    #[test]
    fn rules_without_a_source_are_removed() {
        let roles = [gathering("all", json!([{"matchLabels": {"to": "x"}}]), &["get"])];
        assert_eq!(changes(&roles), ["all: "]);
    }

    #[test]
    fn expressions_select_as_for_any_kind() {
        let cases = [
            ("NotIn", json!(["x"]), "a", true),
            ("NotIn", json!(["a"]), "a", false),
            ("Exists", json!([]), "a", true),
            ("DoesNotExist", json!([]), "a", false),
        ];
        for (operator, values, label, expected) in cases {
            let selector = json!({"matchExpressions": [{"key": "to", "operator": operator,
                "values": values}]});
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let labels = BTreeMap::from([("to".to_owned(), label.to_owned())]);
            assert_eq!(selects(&selector, &labels), expected, "{operator}");
        }
    }
}
