//! LimitRanges.

use std::collections::BTreeSet;

use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, SPEC};
use crate::core::resource;
use crate::resource::{Printer, Resource, Strategy};
use crate::{json, print, quantity, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["limits"],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        create_on_update: true,
        ..Strategy::GENERIC
    },
    printer: Printer::CREATED,
    ..Resource::namespaced("", "v1", "limitranges", "limitrange", "LimitRange")
};

const TYPES: &[&str] = &["Pod", "Container", "PersistentVolumeClaim"];

/// For containers the maximum is the default, the default is what is requested,
/// and failing that the minimum is.
fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    for limit in json::items_mut(spec, "limits") {
        if json::text(limit, "/type") != "Container" {
            continue;
        }
        json::fill(limit, "default", json!({}));
        json::fill(limit, "defaultRequest", json!({}));
        inherit(limit, "max", "default");
        inherit(limit, "default", "defaultRequest");
        inherit(limit, "min", "defaultRequest");
    }
}

fn inherit(limit: &mut Value, from: &str, to: &str) {
    let source = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(target) = limit.get_mut(to) {
        for (name, amount) in source {
            json::fill(target, &name, amount);
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let list = SPEC.field("limits");
    let limits = json::list(object, "/spec/limits");
    for (index, limit) in limits.iter().enumerate() {
        let path = list.index(index);
        let kind = json::text(limit, "/type");
        validate_type(kind, &path.field("type"), errors);
        if limits[..index].iter().any(|other| json::text(other, "/type") == kind) {
            errors.push(FieldError::duplicate(path.field("type"), kind));
        }
        validate_limit(limit, kind, &path, errors);
    }
}

fn validate_type(kind: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let problems = syntax::qualified_name(kind);
    if problems.is_empty() && !kind.contains('/') && !TYPES.contains(&kind) {
        let detail = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, kind, detail));
    }
    check::each(problems, kind, path, errors);
}

fn validate_limit(limit: &Value, kind: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let list = path.field(key);
        let defaults = matches!(key, "default" | "defaultRequest");
        if kind == "Pod" && defaults {
            if json::count(limit, &format!("/{key}")) > 0 {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(list, detail));
            }
            continue;
        }
        for (name, _) in json::entries(limit, &format!("/{key}")) {
            names.insert(name);
            match kind {
                "Pod" | "Container" => {
                    resource::validate_for_container(name, &list.key(name), errors);
                }
                _ => {
                    resource::validate(name, &list.key(name), errors);
                }
            }
        }
    }
    if kind == "PersistentVolumeClaim"
        && !json::has(limit, "/min/storage")
        && !json::has(limit, "/max/storage")
    {
        let detail =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(path.field("limits"), detail));
    }
    for name in names {
        validate_order(limit, name, path, errors);
    }
}

/// min ≤ defaultRequest ≤ default ≤ max, as far as given, and a ratio of at least one.
fn validate_order(limit: &Value, name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let get = |key: &str| limit.get(key).and_then(|list| list.get(name));
    let mut order = |(low, low_words): (&str, &str), (high, high_words): (&str, &str), at: &str| {
        let (Some(small), Some(large)) = (get(low), get(high)) else { return };
        if quantity::parse(small) <= quantity::parse(large) {
            return;
        }
        let detail = format!(
            "{low_words} value {} is greater than {high_words} value {}",
            print::quantity(Some(small)),
            print::quantity(Some(large)),
        );
        let value = get(at).cloned().unwrap_or_default();
        let list = path.field(at);
        errors.push(FieldError::invalid(list.key(name), value, detail));
    };
    let (min, max) = (("min", "min"), ("max", "max"));
    let request = ("defaultRequest", "default request");
    order(min, max, "min");
    order(min, request, "defaultRequest");
    order(request, max, "defaultRequest");
    order(request, ("default", "default limit"), "defaultRequest");
    order(min, ("default", "default"), "default");
    order(("default", "default"), max, "default");
    if let Some(ratio) = get("maxLimitRequestRatio")
        && quantity::parse(ratio).is_some_and(|ratio| ratio < quantity::units(1))
    {
        let list = path.field("maxLimitRequestRatio");
        let detail = format!("ratio {} is less than 1", print::quantity(Some(ratio)));
        errors.push(FieldError::invalid(list.key(name), ratio.clone(), detail));
    }
}
