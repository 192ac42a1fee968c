//! One policy rule: how it is read from JSON, what it matches, how it is printed.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::policy::{AccessTarget, Attributes, ResourceRequest};

const ALL: &str = "*";

/// Rights of a role. Rules only ever add rights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl PolicyRule {
    /// The rules of a role. A rule that cannot be read grants nothing.
    pub fn list(role: &Value) -> Vec<Self> {
        let Some(Value::Array(rules)) = role.get("rules") else { return Vec::new() };
        rules.iter().filter_map(|rule| Self::deserialize(rule).ok()).collect()
    }

    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a struct of string lists is always JSON")
    }

    /// Whether this rule alone allows the request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has_or_all(&self.verbs, attributes.verb)
            && match &attributes.target {
                AccessTarget::Resource(request) => self.allows_resource(request),
                AccessTarget::Path(path) => {
                    self.non_resource_urls.iter().any(|url| url_covers(url, path))
                }
            }
    }

    fn allows_resource(&self, request: &ResourceRequest<'_>) -> bool {
        has_or_all(&self.api_groups, request.group)
            && self
                .resources
                .iter()
                .any(|rule| resource_matches(rule, request.resource, request.subresource))
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|name| name == request.name))
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`
    pub fn compact_text(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted(values)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

fn has_or_all(set: &[String], wanted: &str) -> bool {
    set.iter().any(|own| own == ALL || own == wanted)
}

/// `rule` is `*`, `resource`, `resource/subresource` or `*/subresource`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.split_once('/')
        .is_some_and(|(head, tail)| (head == resource || head == ALL) && tail == subresource)
}

/// Whether a `nonResourceURLs` entry (exact, or a prefix before trailing stars) covers `path`.
pub(crate) fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// `["a" "b"]`, the way error texts show a list of strings.
pub(crate) fn quoted(values: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{:?}", value.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> PolicyRule {
        PolicyRule::deserialize(value).unwrap()
    }

    #[test]
    fn resources_match_by_name_star_and_subresource() {
        for (own, resource, subresource, expected) in [
            ("*", "pods", "", true),
            ("*", "pods", "status", true),
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("*/status", "pods", "status", true),
            ("*/status", "pods", "scale", false),
            ("*/status", "pods", "", false),
            ("*/scale", "anything", "scale", true),
            ("pods/*", "pods", "status", false),
            ("pods/*", "pods", "", false),
        ] {
            assert_eq!(
                resource_matches(own, resource, subresource),
                expected,
                "{own} against {resource}/{subresource}"
            );
        }
    }

    #[test]
    fn paths_match_exactly_or_by_prefix() {
        for (own, path, expected) in [
            ("*", "/anything", true),
            ("/apis", "/apis", true),
            ("/apis", "/apis/x", false),
            ("/apis/*", "/apis/x", true),
            ("/apis/*", "/apis", false),
            ("/apis*", "/apisx", true),
            ("/api**", "/apis", true),
            ("/a*s", "/apis", false),
        ] {
            assert_eq!(url_covers(own, path), expected, "{own} against {path}");
        }
    }

    #[test]
    fn names_restrict_only_when_given() {
        let named = rule(json!({"verbs": ["get", "list", "create"], "apiGroups": [""],
            "resources": ["configmaps"], "resourceNames": ["a"]}));
        let ask = |verb, name| {
            let request =
                ResourceRequest { resource: "configmaps", name, ..ResourceRequest::default() };
            named.allows(&Attributes { verb, target: AccessTarget::Resource(request) })
        };
        assert!(ask("get", "a"));
        assert!(!ask("get", "b"));
        // A list narrowed to one name carries it; a plain list or create has none.
        assert!(ask("list", "a"));
        assert!(!ask("list", ""));
        assert!(!ask("create", ""));
    }

    #[test]
    fn a_resource_rule_says_nothing_about_paths_and_the_reverse() {
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(!all.allows(&Attributes { verb: "get", target: AccessTarget::Path("/healthz") }));
        let paths = rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        let pods = ResourceRequest { resource: "pods", ..ResourceRequest::default() };
        assert!(!paths.allows(&Attributes { verb: "get", target: AccessTarget::Resource(pods) }));
    }

    #[test]
    fn unreadable_rules_grant_nothing_and_nulls_are_empty() {
        let role = json!({"rules": [
            {"verbs": "get"},
            {"verbs": ["get"], "apiGroups": null, "resources": null},
        ]});
        assert_eq!(
            PolicyRule::list(&role),
            [PolicyRule { verbs: vec!["get".into()], ..PolicyRule::default() }]
        );
        assert_eq!(PolicyRule::list(&json!({"rules": null})), []);
    }

    #[test]
    fn compact_text_leaves_out_what_is_empty() {
        let text =
            rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}))
                .compact_text();
        assert_eq!(text, r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#);
    }
}
