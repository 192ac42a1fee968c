//! The rights of a user, as the API server lists them: links, actions and schemas show no more than
//! those. The API server authorizes each request itself. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// A namespace that cannot exist: no binding is in it, so only those of the cluster count.
const NO_NAMESPACE: &str = ".";

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

/// The objects of a resource on which a right is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AllowedNames {
    All,
    Only(BTreeSet<String>),
}

impl AllowedNames {
    pub(crate) fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// The objects that are in both.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, names) | (names, Self::All) => names,
            (Self::Only(one), Self::Only(other)) => Self::Only(&one & &other),
        }
    }

    /// All objects or none.
    pub(crate) fn all_if(allowed: bool) -> Self {
        if allowed { Self::All } else { Self::Only(BTreeSet::new()) }
    }
}

/// The question for rights that hold in the whole cluster.
pub(crate) fn cluster_question() -> (&'static str, Value) {
    question(NO_NAMESPACE)
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
        self.0.iter().any(|rule| {
            rule.covers(verb, group, resource)
                && (rule.resource_names.is_empty()
                    || rule.resource_names.iter().any(|own| own == name))
        })
    }

    /// The objects on which `verb` is allowed.
    pub(crate) fn names(&self, verb: &str, group: &str, resource: &str) -> AllowedNames {
        let mut names = BTreeSet::new();
        for rule in self.0.iter().filter(|rule| rule.covers(verb, group, resource)) {
            if rule.resource_names.is_empty() {
                return AllowedNames::All;
            }
            names.extend(rule.resource_names.iter().cloned());
        }
        AllowedNames::Only(names)
    }
}

impl Rule {
    fn covers(&self, verb: &str, group: &str, resource: &str) -> bool {
        let has = |list: &[String], wanted: &str| {
            list.iter().any(|item| item == "*" || item.eq_ignore_ascii_case(wanted))
        };
        let of_any = |item: &String| {
            let own = item.strip_prefix("*/");
            own.is_some() && own == resource.split_once('/').map(|(_, subresource)| subresource)
        };
        has(&self.verbs, verb)
            && has(&self.api_groups, group)
            && (has(&self.resources, resource) || self.resources.iter().any(of_any))
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
            {"verbs": ["update"], "apiGroups": ["g"], "resources": ["*/start"]},
        ]}}));
        for (verb, group, resource, name, allowed) in [
            ("list", "", "pods", "", true),
            ("update", "", "pods", "a", false),
            ("update", "kubevirt.io", "virtualmachines", "web", true),
            ("update", "kubevirt.io", "virtualmachines", "db", false),
            ("list", "kubevirt.io", "virtualmachines", "", false),
            ("update", "g", "virtualmachines/start", "", true),
            ("update", "g", "virtualmachines", "", false),
        ] {
            assert_eq!(
                rights.may(verb, group, resource, name),
                allowed,
                "{verb} {resource} {name}"
            );
        }
    }

    #[test]
    fn names_of_two_rights_are_those_in_both() {
        let names =
            |list: &[&str]| AllowedNames::Only(list.iter().map(|&name| name.to_owned()).collect());
        let (two, one) = (names(&["a", "b"]), names(&["b", "c"]));
        assert_eq!(two.clone().and(one), names(&["b"]));
        assert_eq!(AllowedNames::All.and(two.clone()), two);
        assert!(!AllowedNames::all_if(false).contains(""));
    }
}
