//! Which requests are meant: rules, match conditions, parameters.

use schema::cel::{Declarations, ExpectedType};
use schema::{FieldError, Path};
use serde_json::{Value, json};

use super::{MATCH_POLICIES, expression};
use crate::{check, json, labels, syntax};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const CONDITIONS_MAX: usize = 64;

/// Fills what a rule leaves open.
pub(super) fn default_rules(holder: &mut Value, key: &str) {
    for rule in json::items_mut(holder, key) {
        json::fill(rule, "scope", "*");
    }
}

/// Fills what `matchResources` or `matchConstraints` leave open.
pub(super) fn default_match(resources: &mut Value) {
    if !resources.is_object() {
        return;
    }
    json::fill(resources, "matchPolicy", "Equivalent");
    json::fill(resources, "namespaceSelector", json!({}));
    json::fill(resources, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources, key);
    }
}

/// Judges what a policy or binding applies to.
pub(super) fn validate_match(resources: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::required_one_of(resources, "matchPolicy", MATCH_POLICIES, path, errors);
    for key in ["namespaceSelector", "objectSelector"] {
        match json::at(resources, &format!("/{key}")) {
            None => errors.push(FieldError::required(path.field(key), "")),
            selector => labels::validate_selector(selector, &path.field(key), errors),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let list = path.field(key);
        for (index, rule) in json::list(resources, &format!("/{key}")).iter().enumerate() {
            let at = list.index(index);
            let names = at.field("resourceNames");
            for (index, name) in json::texts(rule, "/resourceNames").iter().enumerate() {
                check::each(syntax::path_segment(name), name, &names.index(index), errors);
            }
            check::distinct(rule, "/resourceNames", &names, errors);
            validate_rule(rule, &at, errors);
        }
    }
}

/// Judges operations, groups, versions and resources of a rule.
pub(super) fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let operations = json::texts(rule, "/operations");
    validate_list(&operations, "operations", "operations", path, errors);
    let list = path.field("operations");
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.push(FieldError::not_supported(list.index(index), *operation, OPERATIONS));
        }
    }
    validate_list(&json::texts(rule, "/apiGroups"), "apiGroups", "API groups", path, errors);
    let versions = json::texts(rule, "/apiVersions");
    validate_list(&versions, "apiVersions", "API versions", path, errors);
    let list = path.field("apiVersions");
    for (index, version) in versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(list.index(index), ""));
        }
    }
    validate_resources(&json::texts(rule, "/resources"), &path.field("resources"), errors);
    check::one_of(rule, "scope", SCOPES, path, errors);
}

fn validate_list(
    items: &[&str],
    key: &str,
    words: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if items.is_empty() {
        errors.push(FieldError::required(path.field(key), ""));
    }
    if items.len() > 1 && items.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {words}");
        errors.push(FieldError::invalid(path.field(key), items.to_vec(), detail));
    }
}

fn validate_resources(resources: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut any_sub, mut any_resource): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, resource) in resources.iter().enumerate() {
        let at = path.index(index);
        if resource.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else { continue };
        if any_sub.contains(&name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(FieldError::invalid(at, *resource, detail));
        }
        if any_resource.contains(&sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(at, *resource, detail));
        }
        if sub == "*" {
            any_sub.push(name);
        }
        if name == "*" {
            any_resource.push(sub);
        }
    }
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid(path, resources.to_vec(), detail));
    };
    if resources.len() > 1 && resources.contains(&"*/*") {
        refuse("if '*/*' is present, must not specify other resources");
    }
    let plain = |resource: &&str| *resource != "*" && !resource.contains('/');
    if resources.contains(&"*") && resources.iter().any(plain) {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}

/// Judges conditions that narrow a rule.
pub(super) fn validate_conditions(
    holder: &Value,
    names: &Declarations<'_>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let list = path.field("matchConditions");
    let conditions = json::list(holder, "/matchConditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(list, conditions.len(), CONDITIONS_MAX));
    }
    for (index, condition) in conditions.iter().enumerate() {
        let at = list.index(index);
        if json::text(condition, "/expression").trim().is_empty() {
            errors.push(FieldError::required(at.field("expression"), ""));
        }
        let source = json::text(condition, "/expression");
        expression::check(source, names, ExpectedType::Bool, &at.field("expression"), errors);
        let Some(name) = check::required(condition, "name", &at, errors) else { continue };
        check::each(syntax::qualified_name(name), name, &at.field("name"), errors);
        if conditions[..index].iter().any(|other| json::text(other, "/name") == name) {
            errors.push(FieldError::duplicate(at.field("name"), name));
        }
    }
}

/// Judges the kind that parameters of a policy are of.
pub(super) fn validate_param_kind(kind: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.field("apiVersion");
    match json::text(kind, "/apiVersion") {
        "" => errors.push(FieldError::required(at, "")),
        text if text.matches('/').count() > 1 => {
            let detail = format!("unexpected GroupVersion string: {text}");
            errors.push(FieldError::invalid(at, text, detail));
        }
        text => {
            let (group, version) = text.rsplit_once('/').unwrap_or(("", text));
            let mut judge = |part: &str, problems: Vec<String>| {
                if !problems.is_empty() {
                    errors.push(FieldError::invalid(at, part, problems.join(",")));
                }
            };
            if !group.is_empty() {
                judge(group, syntax::subdomain(group));
            }
            if version.is_empty() {
                judge(text, vec!["version must be specified".to_owned()]);
            } else {
                judge(version, syntax::label_1035(version));
            }
        }
    }
    if let Some(name) = check::required(kind, "kind", path, errors) {
        let problems = syntax::label_1035(&name.to_lowercase());
        if !problems.is_empty() {
            let detail =
                format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(FieldError::invalid(path.field("kind"), name, detail));
        }
    }
}
