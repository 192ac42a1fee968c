//! Validation and defaults of roles and bindings. Metadata is validated together with that of
//! every other kind, not here.

use kinds::{IMMUTABLE, labels, syntax};
use schema::{FieldError, Path};
use serde_json::Value;

use super::GROUP;
use super::policy::text;

/// The errors of a Role.
pub fn validate_role(role: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_rules(role, RuleScope::Namespace, &mut errors);
    errors
}

/// The errors of a ClusterRole.
pub fn validate_cluster_role(role: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_rules(role, RuleScope::Cluster, &mut errors);
    let Some(aggregation) = role.get("aggregationRule").filter(|rule| !rule.is_null()) else {
        return errors;
    };
    let root = Path::Root;
    let rule = root.field("aggregationRule");
    let path = rule.field("clusterRoleSelectors");
    let selectors = list(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    for (index, selector) in selectors.iter().enumerate() {
        labels::validate_selector(Some(selector), &path.index(index), &mut errors);
    }
    errors
}

/// The errors of a RoleBinding.
pub fn validate_role_binding(binding: &Value, old: Option<&Value>) -> Vec<FieldError> {
    validate_binding(binding, old, RuleScope::Namespace)
}

/// The errors of a ClusterRoleBinding.
pub fn validate_cluster_role_binding(binding: &Value, old: Option<&Value>) -> Vec<FieldError> {
    validate_binding(binding, old, RuleScope::Cluster)
}

/// Fills in the API groups of the role and the subjects of a binding of either kind.
pub fn default_binding(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef") {
        default_group(role);
    }
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_group(subject);
        }
    }
}

fn default_group(reference: &mut Value) {
    let is_empty = text(reference, "apiGroup").is_empty();
    if let Some(fields) = reference.as_object_mut().filter(|_| is_empty) {
        fields.insert("apiGroup".to_owned(), GROUP.into());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleScope {
    Namespace,
    Cluster,
}

fn validate_rules(role: &Value, scope: RuleScope, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let path = root.field("rules");
    for (index, rule) in list(role, "rules").iter().enumerate() {
        validate_rule(rule, scope, &path.index(index), errors);
    }
}

fn validate_rule(rule: &Value, scope: RuleScope, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let is_empty = |field: &str| list(rule, field).is_empty();
    if is_empty("verbs") {
        let detail = "verbs must contain at least one value";
        errors.push(FieldError::required(path.field("verbs"), detail));
    }
    if !is_empty("nonResourceURLs") {
        let mut refuse = |detail: &str| {
            let urls = rule["nonResourceURLs"].clone();
            errors.push(FieldError::invalid(path.field("nonResourceURLs"), urls, detail));
        };
        if scope == RuleScope::Namespace {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if is_empty("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(path.field("apiGroups"), detail));
    }
    if is_empty("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(path.field("resources"), detail));
    }
}

fn validate_binding(binding: &Value, old: Option<&Value>, scope: RuleScope) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let root = Path::Root;
    let role = &binding["roleRef"];
    let path = root.field("roleRef");
    let group = text(role, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(path.field("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = match scope {
        RuleScope::Namespace => &["Role", "ClusterRole"],
        RuleScope::Cluster => &["ClusterRole"],
    };
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.field("kind"), kind, kinds));
    }
    match text(role, "name") {
        "" => errors.push(FieldError::required(path.field("name"), "")),
        name => errors.extend(
            syntax::path_segment(name)
                .into_iter()
                .map(|detail| FieldError::invalid(path.field("name"), name, detail)),
        ),
    }
    let subjects = root.field("subjects");
    for (index, subject) in list(binding, "subjects").iter().enumerate() {
        validate_subject(subject, scope, &subjects.index(index), &mut errors);
    }
    if let Some(old) = old
        && old["roleRef"] != *role
    {
        errors.push(FieldError::invalid(path, role.clone(), IMMUTABLE));
    }
    errors
}

fn validate_subject(
    subject: &Value,
    scope: RuleScope,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            let problems = if name.is_empty() { Vec::new() } else { syntax::subdomain(name) };
            errors.extend(
                problems
                    .into_iter()
                    .map(|detail| FieldError::invalid(path.field("name"), name, detail)),
            );
            if !group.is_empty() {
                errors.push(FieldError::not_supported(path.field("apiGroup"), group, &[""]));
            }
            if scope == RuleScope::Cluster && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.field("namespace"), ""));
            }
        }
        "User" | "Group" if group != GROUP => {
            errors.push(FieldError::not_supported(path.field("apiGroup"), group, &[GROUP]));
        }
        "User" | "Group" => {}
        kind => {
            let valid = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(path.field("kind"), kind, &valid));
        }
    }
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests;
