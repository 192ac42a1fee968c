//! Which writes a webhook or a policy is meant for. Pure.

use serde_json::Value;

use crate::verbs::selector::LabelSelector;

/// A write, as rules match it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteAttributes<'a> {
    pub(crate) operation: &'a str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    /// Of a namespace its own name.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// `RuleWithOperations`, with the names that policies add.
#[derive(Debug, Clone, Default)]
struct MatchRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: MatchScope,
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum MatchScope {
    #[default]
    All,
    Cluster,
    Namespaced,
}

/// The rules and selectors of one webhook, policy or binding.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constraints {
    rules: Vec<MatchRule>,
    excluded: Vec<MatchRule>,
    equivalent: bool,
    /// Whether having no rules means everything.
    open: bool,
    pub(crate) namespaces: LabelSelector,
    pub(crate) objects: LabelSelector,
}

/// How a write is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOperation {
    No,
    /// As it was asked for.
    AsAsked,
    /// As the equivalent with this index.
    As(usize),
}

impl Constraints {
    /// Of a webhook.
    pub(crate) fn of_hook(hook: &Value) -> Self {
        Self {
            rules: rules(&hook["rules"]),
            excluded: Vec::new(),
            equivalent: hook["matchPolicy"] != "Exact",
            open: false,
            namespaces: LabelSelector::of(&hook["namespaceSelector"]),
            objects: LabelSelector::of(&hook["objectSelector"]),
        }
    }

    /// `MatchResources` of a policy or a binding; without rules it means everything.
    pub(crate) fn of_match(resources: &Value) -> Self {
        Self {
            rules: rules(&resources["resourceRules"]),
            excluded: rules(&resources["excludeResourceRules"]),
            equivalent: resources["matchPolicy"] != "Exact",
            open: true,
            namespaces: LabelSelector::of(&resources["namespaceSelector"]),
            objects: LabelSelector::of(&resources["objectSelector"]),
        }
    }

    /// Goes by the rules alone. `others` are equivalents of what was asked for.
    pub(crate) fn meant(
        &self,
        asked: &WriteAttributes<'_>,
        others: &[WriteAttributes<'_>],
    ) -> WriteOperation {
        if self.one_of(&self.excluded, asked, others) != WriteOperation::No {
            return WriteOperation::No;
        }
        if self.rules.is_empty() && self.open {
            return WriteOperation::AsAsked;
        }
        self.one_of(&self.rules, asked, others)
    }

    fn one_of(
        &self,
        rules: &[MatchRule],
        asked: &WriteAttributes<'_>,
        others: &[WriteAttributes<'_>],
    ) -> WriteOperation {
        if rules.iter().any(|rule| rule.matches(asked)) {
            return WriteOperation::AsAsked;
        }
        if !self.equivalent {
            return WriteOperation::No;
        }
        // Earlier rules first.
        for rule in rules {
            if let Some(at) = others.iter().position(|other| rule.matches(other)) {
                return WriteOperation::As(at);
            }
        }
        WriteOperation::No
    }
}

fn rules(list: &Value) -> Vec<MatchRule> {
    list.as_array().into_iter().flatten().map(MatchRule::of).collect()
}

impl MatchRule {
    fn of(rule: &Value) -> Self {
        let texts = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => MatchScope::Cluster,
                Some("Namespaced") => MatchScope::Namespaced,
                _ => MatchScope::All,
            },
            names: texts("resourceNames"),
        }
    }

    fn matches(&self, asked: &WriteAttributes<'_>) -> bool {
        let any = |list: &[String], wanted: &str| {
            list.iter().any(|known| known == "*" || known == wanted)
        };
        self.scope.holds(asked)
            && any(&self.operations, asked.operation)
            && any(&self.groups, asked.group)
            && any(&self.versions, asked.version)
            && self.resources.iter().any(|pattern| resource_matches(pattern, asked))
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }
}

impl MatchScope {
    fn holds(self, asked: &WriteAttributes<'_>) -> bool {
        let is_namespace = asked.group.is_empty() && asked.resource == "namespaces";
        let clustered = is_namespace || asked.namespace.is_empty();
        match self {
            Self::All => true,
            Self::Cluster => clustered,
            Self::Namespaced => !clustered,
        }
    }
}

/// `pods`, `pods/status`, `*`, `*/scale`, `pods/*`, `*/*`
fn resource_matches(pattern: &str, asked: &WriteAttributes<'_>) -> bool {
    let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == asked.resource) && (sub == "*" || sub == asked.subresource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POD: WriteAttributes<'static> = WriteAttributes {
        operation: "CREATE",
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespace: "default",
        name: "web",
    };

    fn rule(change: &Value) -> Value {
        let mut rule = json!({
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
        });
        for (field, value) in change.as_object().unwrap() {
            rule[field] = value.clone();
        }
        json!({"rules": [rule]})
    }

    #[test]
    fn rules_match_as_upstream() {
        let status = WriteAttributes { subresource: "status", ..POD };
        let node = WriteAttributes { resource: "nodes", namespace: "", ..POD };
        let namespace = WriteAttributes { resource: "namespaces", namespace: "default", ..POD };
        for (change, asked, expected) in [
            (json!({}), POD, true),
            (json!({}), status, false),
            (json!({"resources": ["*/*"]}), status, true),
            (json!({"resources": ["pods/*"]}), status, true),
            // As upstream does, whatever its documents say.
            (json!({"resources": ["pods/*"]}), POD, true),
            (json!({"resources": ["*/status"]}), status, true),
            (json!({"resources": ["pods/status"]}), status, true),
            (json!({"resources": ["pods"]}), status, false),
            (json!({"resources": ["nodes", "pods"]}), POD, true),
            (json!({"operations": ["UPDATE", "CREATE"]}), POD, true),
            (json!({"operations": ["UPDATE"]}), POD, false),
            (json!({"apiGroups": ["apps"]}), POD, false),
            (json!({"apiGroups": [""]}), POD, true),
            (json!({"apiVersions": ["v2"]}), POD, false),
            (json!({"scope": "Namespaced"}), POD, true),
            (json!({"scope": "Cluster"}), POD, false),
            (json!({"scope": "Namespaced"}), node, false),
            (json!({"scope": "Cluster"}), node, true),
            (json!({"scope": "Cluster"}), namespace, true),
            (json!({"scope": "Namespaced"}), namespace, false),
            (json!({"scope": "*"}), namespace, true),
        ] {
            let constraints = Constraints::of_hook(&rule(&change));
            let meant = constraints.meant(&asked, &[]) == WriteOperation::AsAsked;
            assert_eq!(meant, expected, "{change} for {asked:?}");
        }
    }

    #[test]
    fn equivalent_versions_match_unless_exactness_is_wanted() {
        let scaler =
            |version| WriteAttributes { group: "autoscaling", version, resource: "hpas", ..POD };
        let mut hook = rule(&json!({"apiVersions": ["v1"]}));
        for (policy, expected) in [
            (json!("Equivalent"), WriteOperation::As(1)),
            (json!("Exact"), WriteOperation::No),
            (json!(null), WriteOperation::As(1)),
        ] {
            hook["matchPolicy"] = policy;
            let constraints = Constraints::of_hook(&hook);
            let others = [scaler("v2beta1"), scaler("v1")];
            assert_eq!(constraints.meant(&scaler("v2"), &others), expected);
            assert_eq!(constraints.meant(&scaler("v1"), &others), WriteOperation::AsAsked);
        }
    }

    #[test]
    fn policies_exclude_and_name() {
        let all = json!({
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
        });
        let mut named = all.clone();
        named["resourceNames"] = json!(["web"]);
        for (resources, expected) in [
            (json!({}), WriteOperation::AsAsked),
            (json!({"resourceRules": [named]}), WriteOperation::AsAsked),
            (json!({"resourceRules": [all], "excludeResourceRules": [named]}), WriteOperation::No),
        ] {
            assert_eq!(Constraints::of_match(&resources).meant(&POD, &[]), expected, "{resources}");
        }
        named["resourceNames"] = json!(["other"]);
        let resources = json!({"resourceRules": [named]});
        assert_eq!(Constraints::of_match(&resources).meant(&POD, &[]), WriteOperation::No);
    }
}
