//! `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.

use serde_json::Value;

use super::super::raw::Raw;
use crate::field::{FieldError, Path};

pub(super) fn check(raw: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list_type = raw.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = raw.list("x-kubernetes-list-map-keys");
    let here = at.field("x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        let text = "must be array if x-kubernetes-list-type is specified";
        match raw.ty() {
            "array" if list_type == "set" => check_set(raw, at, errors),
            "array" => {}
            "" => errors.push(FieldError::required(at.field("type"), text)),
            ty => errors.push(FieldError::invalid(at.field("type"), ty, text)),
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let valid = &["atomic", "set", "map"];
            errors.push(FieldError::not_supported(here, list_type, valid));
        }
    }
    if !keys.is_empty() {
        let text = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(here, text)),
            Some("map") => {}
            Some(other) => errors.push(FieldError::invalid(here, other, text)),
        }
    }
    if list_type == Some("map") {
        check_map(raw, keys, at, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, raw.items()) {
        check_items(raw, items, list_type, at, errors);
    }
}

/// A set compares whole items, which therefore must be atomic.
fn check_set(raw: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(items) = raw.items() else { return };
    let at = at.field("items");
    let text = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get("x-kubernetes-list-type");
    match items.ty() {
        "array" if list_type.is_some_and(|list_type| list_type != "atomic") => {
            let value = list_type.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(at.field("x-kubernetes-list-type"), value, text));
        }
        "object" if items.text("x-kubernetes-map-type") != "atomic" => {
            let value = list_type.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(at.field("x-kubernetes-map-type"), value, text));
        }
        _ => {}
    }
}

fn check_map(raw: Raw<'_>, keys: &[Value], at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let here = at.field("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let text = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(here, text));
    }
    let Some(items) = raw.items() else {
        errors.push(match raw.get("items") {
            None => FieldError::required(
                at.field("items"),
                "must have a schema if x-kubernetes-list-type is map",
            ),
            Some(list) => FieldError::invalid(
                at.field("items"),
                list.clone(),
                "must only have a single schema if x-kubernetes-list-type is map",
            ),
        });
        return;
    };
    let at = at.field("items");
    if items.ty() != "object" {
        let text = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(at.field("type"), items.ty(), text));
        return;
    }
    let properties = at.field("properties");
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let mut invalid = |text: &str| errors.push(FieldError::invalid(here, keys.to_vec(), text));
        match items.property(name) {
            None => invalid("entries must all be names of item properties"),
            Some(property) if matches!(property.ty(), "array" | "object") => {
                let at = properties.key(name);
                let text = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(at.field("type"), items.ty(), text));
            }
            Some(_) => {}
        }
        if keys[..index].contains(key) {
            let text = "must not contain duplicate entries";
            errors.push(FieldError::invalid(here, keys.to_vec(), text));
        }
    }
}

/// Keys must always have a value, or items could not be distinguished.
fn check_items(
    raw: Raw<'_>,
    items: Raw<'_>,
    list_type: &str,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let at = at.field("items");
    if items.flag("nullable") {
        let text = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(at.field("nullable"), text));
    }
    if list_type != "map" {
        return;
    }
    let properties = at.field("properties");
    for key in raw.list("x-kubernetes-list-map-keys") {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.property(name) else { continue };
        let at = properties.key(name);
        if !items.list("required").contains(key) && property.get("default").is_none() {
            let text = "this property is in x-kubernetes-list-map-keys, so it must have a \
                default or be a required property";
            errors.push(FieldError::required(at.field("default"), text));
        }
        if property.flag("nullable") {
            let text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(at.field("nullable"), text));
        }
    }
}
