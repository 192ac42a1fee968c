//! The rights of a user, as the API server lists them: links and schemas show no more than those.
//! The API server authorizes each request itself. Pure.

use serde_json::{Value, json};

/// The rules of a user in one namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights(Vec<Rule>);

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// The path and body that ask for the rules of the caller.
pub(crate) fn question(namespace: &str) -> (&'static str, Value) {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
}

impl Rights {
    pub(crate) fn read(review: &Value) -> Self {
        let rules = review["status"]["resourceRules"].as_array();
        let rules = rules.into_iter().flatten();
        Self(rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect())
    }

    /// Whether `verb` is allowed; an empty `name` asks for all objects.
    pub(crate) fn may(&self, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let has = |list: &[String], wanted: &str| {
            list.iter().any(|item| item == "*" || item.eq_ignore_ascii_case(wanted))
        };
        self.0.iter().any(|rule| {
            has(&rule.verbs, verb)
                && has(&rule.api_groups, group)
                && has(&rule.resources, resource)
                && (rule.resource_names.is_empty()
                    || rule.resource_names.iter().any(|own| own == name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_verbs_on_resources_and_names() {
        let rights = Rights::read(&json!({"status": {"resourceRules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["*"]},
            {"verbs": ["*"], "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"],
             "resourceNames": ["web"]},
        ]}}));
        for (verb, group, resource, name, allowed) in [
            ("list", "", "pods", "", true),
            ("update", "", "pods", "a", false),
            ("update", "kubevirt.io", "virtualmachines", "web", true),
            ("update", "kubevirt.io", "virtualmachines", "db", false),
            ("list", "kubevirt.io", "virtualmachines", "", false),
        ] {
            assert_eq!(
                rights.may(verb, group, resource, name),
                allowed,
                "{verb} {resource} {name}"
            );
        }
    }
}
