//! Pod specs, in pods and in the templates of workloads: defaults and validation.
//!
//! Nothing here runs pods. Charts and other clients apply workloads and read back what
//! they would read from any cluster, so specs are filled in and judged like upstream's;
//! corners that only a kubelet would notice are left to it.

mod container;
mod default;
mod volume;

pub(crate) use default::{default_spec, default_template};
use schema::{FieldError, Path};
use serde_json::Value;

use crate::core::node::EFFECTS;
use crate::{check, json, labels, metadata, syntax};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Judges a template of pods.
pub(crate) fn validate_template(template: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let metadata = template.get("metadata").unwrap_or(&Value::Null);
    labels::validate(metadata.get("labels"), &path.field("labels"), errors);
    metadata::annotations(metadata.get("annotations"), &path.field("annotations"), errors);
    let spec = path.field("spec");
    validate_spec(template.get("spec").unwrap_or(&Value::Null), &spec, errors);
    if json::count(template, "/spec/ephemeralContainers") > 0 {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(spec.field("ephemeralContainers"), detail));
    }
}

/// Judges the spec of a pod.
pub(crate) fn validate_spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !json::has(spec, "/terminationGracePeriodSeconds") {
        errors.push(FieldError::required(path.field("terminationGracePeriodSeconds"), ""));
    }
    volume::validate(spec, path, errors);
    container::validate(spec, path, errors);
    check::required_one_of(spec, "restartPolicy", RESTART_POLICIES, path, errors);
    check::required_one_of(spec, "dnsPolicy", DNS_POLICIES, path, errors);
    labels::validate(spec.get("nodeSelector"), &path.field("nodeSelector"), errors);
    names(spec, path, errors);
    if let Some(seconds) = json::int_at(spec, "/activeDeadlineSeconds") {
        for problem in syntax::in_range(seconds, 1, i64::from(i32::MAX)) {
            errors.push(FieldError::invalid(path.field("activeDeadlineSeconds"), seconds, problem));
        }
    }
    let list = path.field("tolerations");
    for (index, toleration) in json::list(spec, "/tolerations").iter().enumerate() {
        validate_toleration(toleration, &list.index(index), errors);
    }
    let policies = &["PreemptLowerPriority", "Never"];
    check::one_of(spec, "preemptionPolicy", policies, path, errors);
}

fn names(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let rules: [(&str, syntax::SyntaxRule); 6] = [
        ("serviceAccountName", syntax::subdomain),
        ("nodeName", syntax::subdomain),
        ("hostname", syntax::label),
        ("subdomain", syntax::label),
        ("priorityClassName", syntax::subdomain),
        ("runtimeClassName", syntax::subdomain),
    ];
    for (key, problems) in rules {
        let name = spec.get(key).and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() {
            check::each(problems(name), name, &path.field(key), errors);
        }
    }
}

fn validate_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (key, value) = (json::text(toleration, "/key"), json::text(toleration, "/value"));
    let operator = json::text(toleration, "/operator");
    let at = path.field("operator");
    if !key.is_empty() {
        check::each(syntax::qualified_name(key), key, &path.field("key"), errors);
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all \
                      values and all keys\"";
        errors.push(FieldError::invalid(at, operator, detail));
    }
    let effect = json::text(toleration, "/effect");
    if json::has(toleration, "/tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(path.field("effect"), effect, detail));
    }
    match operator {
        "" | "Equal" => {
            let problems = syntax::label_value(value);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(at, value, problems.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(at, value, detail));
        }
        "Exists" => {}
        _ => errors.push(FieldError::not_supported(at, operator, &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        check::one_of(toleration, "effect", EFFECTS, path, errors);
    }
}
