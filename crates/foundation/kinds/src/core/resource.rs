//! Names of the things that are counted: cpu, memory, storage, objects.

use schema::{FieldError, Path};

use crate::{check, syntax};

const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// Whether only whole amounts make sense.
pub(crate) fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Validates a name that may be in any list of resources.
pub(crate) fn validate(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> bool {
    let problems = syntax::qualified_name(name);
    if !problems.is_empty() {
        check::each(problems, name, path, errors);
        return false;
    }
    if !name.contains('/') && !is_standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
    true
}

/// Judges a name that a quota may limit.
pub(crate) fn validate_for_quota(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate(name, path, errors);
    if !name.contains('/') && !is_standard_for_quota(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

/// Judges a name that a container may ask for.
pub(crate) fn validate_for_container(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate(name, path, errors);
    if !name.contains('/') {
        if !COMPUTE.contains(&name) && !is_huge_page(name) {
            let detail = "must be a standard resource for containers";
            errors.push(FieldError::invalid(path, name, detail));
        }
    } else if !is_native(name) && !is_extended(name) {
        let detail = "doesn't follow extended resource name standard";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

/// Whether a quota may name it without a domain.
pub(crate) fn is_standard_for_quota(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").or(name.strip_prefix("limits."));
    COUNTED.contains(&name)
        || COMPUTE.contains(&name)
        || bare.is_some_and(|bare| COMPUTE.contains(&bare))
        || name == "requests.storage"
        || is_huge_page(name.strip_prefix("requests.").unwrap_or(name))
}

fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_for_quota(name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && syntax::qualified_name(&format!("requests.{name}")).is_empty()
}
