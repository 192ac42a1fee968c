//! No user may grant rights that they do not have: the checks on writing roles and bindings.
//!
//! Exempt are members of `system:masters`, those with the verb `escalate` on a role
//! or `bind` on the role being bound, and changes that only help an object to be deleted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::GROUP;
use super::policy::{
    AccessTarget, Attributes, RbacPolicy, ResourceRequest, RoleRef, RoleRefError, full_authority,
    name, text,
};
use super::rule::{PolicyRule, quoted, url_covers};
use crate::user::{MASTERS, User};

/// Why a role or binding may not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationError {
    /// Answer 403 for the object, with this text.
    #[error(
        "user {user:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{}",
        quoted(groups),
        missing_text(missing),
        resolution_text(unresolved)
    )]
    NotHeld {
        user: String,
        groups: Vec<String>,
        missing: Vec<PolicyRule>,
        unresolved: Vec<RoleRefError>,
    },
    /// Answer 403 for the object, with this text.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    AggregationRule,
    /// Answer 404: the binding refers to a role that does not exist.
    #[error(transparent)]
    Role(#[from] RoleRefError),
}

/// Whether `user` may write this Role or ClusterRole. `namespace` is that of the
/// request, empty for a ClusterRole; `old` is what an update replaces.
pub fn check_role(
    user: &User,
    policy: &RbacPolicy,
    namespace: &str,
    role: &Value,
    old: Option<&Value>,
) -> Result<(), EscalationError> {
    let is_cluster = text(role, "kind") == "ClusterRole";
    let resource = if is_cluster { "clusterroles" } else { "roles" };
    let request = ResourceRequest {
        group: GROUP,
        resource,
        namespace,
        // The path of a create has no name, so a rule with names cannot allow it.
        name: old.map(name).unwrap_or_default(),
        ..ResourceRequest::default()
    };
    let escalate = Attributes { verb: "escalate", target: AccessTarget::Resource(request) };
    if user.is_in(MASTERS)
        || policy.authorize(user, &escalate).is_allowed()
        || old.is_some_and(|old| changes_only_ownership(role, old))
    {
        return Ok(());
    }
    confirm(user, policy, namespace, &PolicyRule::list(role))?;
    // Aggregation gathers whatever appears later, so it takes the right to everything.
    if is_cluster && (is_aggregated(role) || old.is_some_and(is_aggregated)) {
        confirm(user, policy, namespace, &full_authority())
            .map_err(|_| EscalationError::AggregationRule)?;
    }
    Ok(())
}

/// Whether `user` may write this RoleBinding or ClusterRoleBinding. `namespace` is
/// that of the request, empty for a ClusterRoleBinding.
pub fn check_binding(
    user: &User,
    policy: &RbacPolicy,
    namespace: &str,
    binding: &Value,
    old: Option<&Value>,
) -> Result<(), EscalationError> {
    let role_ref = RoleRef::of(binding);
    if user.is_in(MASTERS)
        || old.is_some_and(|old| changes_only_ownership(binding, old))
        || may_bind(user, policy, namespace, &role_ref)
    {
        return Ok(());
    }
    let rules = policy.resolve(&role_ref, namespace)?;
    confirm(user, policy, namespace, &rules)
}

fn may_bind(user: &User, policy: &RbacPolicy, namespace: &str, role: &RoleRef) -> bool {
    let resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => return false,
    };
    let (group, name) = (role.api_group.as_str(), role.name.as_str());
    let request =
        ResourceRequest { group, resource, namespace, name, ..ResourceRequest::default() };
    let bind = Attributes { verb: "bind", target: AccessTarget::Resource(request) };
    policy.authorize(user, &bind).is_allowed()
}

fn confirm(
    user: &User,
    policy: &RbacPolicy,
    namespace: &str,
    wanted: &[PolicyRule],
) -> Result<(), EscalationError> {
    let (held, unresolved) = policy.rules(user, namespace);
    let missing = covers(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    Err(EscalationError::NotHeld {
        user: user.name.clone(),
        groups: user.groups.clone(),
        missing,
        unresolved,
    })
}

/// The parts of `wanted` that `held` does not cover, each about one verb and one thing.
pub fn covers(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let parts = wanted.iter().flat_map(break_down);
    parts.filter(|part| !held.iter().any(|rule| rule_covers(rule, part))).collect()
}

/// Splits a rule into ones with a single verb, group, resource and name, or verb and path.
fn break_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |value: &String| vec![value.clone()];
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                    continue;
                }
                let names = rule.resource_names.iter();
                parts.extend(
                    names.map(|name| PolicyRule { resource_names: one(name), ..part.clone() }),
                );
            }
        }
    }
    for url in &rule.non_resource_urls {
        parts.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: one(verb),
            non_resource_urls: one(url),
            ..PolicyRule::default()
        }));
    }
    parts
}

fn rule_covers(held: &PolicyRule, part: &PolicyRule) -> bool {
    let has = |set: &[String], value: &String| set.contains(value);
    let has_all = |set: &[String], values: &[String]| {
        set.iter().any(|own| own == "*") || values.iter().all(|value| has(set, value))
    };
    let resources = has_all(&held.resources, &part.resources)
        || part.resources.iter().all(|resource| {
            has(&held.resources, resource)
                || resource
                    .split_once('/')
                    .is_some_and(|(_, sub)| has(&held.resources, &format!("*/{sub}")))
        });
    // A rule for some names never covers one for all of them.
    let names = held.resource_names.is_empty()
        || (!part.resource_names.is_empty()
            && part.resource_names.iter().all(|name| has(&held.resource_names, name)));
    let urls = part
        .non_resource_urls
        .iter()
        .all(|path| held.non_resource_urls.iter().any(|url| url_covers(url, path)));
    has_all(&held.verbs, &part.verbs)
        && has_all(&held.api_groups, &part.api_groups)
        && resources
        && names
        && urls
}

fn is_aggregated(role: &Value) -> bool {
    let selectors = role.get("aggregationRule").and_then(|rule| rule.get("clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|selectors| !selectors.is_empty())
}

/// Whether only fields differ that the garbage collector needs to change.
fn changes_only_ownership(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}

/// One line per resource, sorted; rules that differ only by verb are merged.
fn missing_text(missing: &[PolicyRule]) -> String {
    let mut lines = BTreeSet::new();
    let mut by_thing: BTreeMap<String, PolicyRule> = BTreeMap::new();
    for rule in missing {
        if !rule.non_resource_urls.is_empty() {
            lines.insert(rule.compact_text());
            continue;
        }
        let thing = PolicyRule { verbs: Vec::new(), ..rule.clone() }.compact_text();
        by_thing
            .entry(thing)
            .and_modify(|sum| sum.verbs.extend(rule.verbs.iter().cloned()))
            .or_insert_with(|| rule.clone());
    }
    lines.extend(by_thing.values().map(PolicyRule::compact_text));
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn resolution_text(unresolved: &[RoleRefError]) -> String {
    match unresolved {
        [] => String::new(),
        [only] => format!("; resolution errors: [{only}]"),
        many => {
            let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("; resolution errors: [[{}]]", texts.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
