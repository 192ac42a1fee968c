//! Rules that hold for the metadata of every object, built-in or custom.
//!
//! This module does not check `resourceVersion`: the caller that stores the object knows whether
//! it is required.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, METADATA};
use crate::resource::{NameRule, Scope};
use crate::{json, labels, syntax};

/// The most bytes all annotations of an object may have together, keys included.
const ANNOTATIONS_MAX: usize = 262_144;
/// Events may not be owners: they are short-lived.
const BANNED_OWNER: (&str, &str) = ("v1", "Event");

/// Judges the metadata of an object to be created; its name has been generated already.
pub fn validate_metadata_create(
    object: &Value,
    scope: Scope,
    rule: NameRule,
    errors: &mut Vec<FieldError>,
) {
    let generate = json::text(object, "/metadata/generateName");
    if !generate.is_empty() {
        let path = METADATA.field("generateName");
        check::each(rule.problems_with_prefix(generate), generate, &path, errors);
    }
    let name = json::text(object, "/metadata/name");
    let path = METADATA.field("name");
    if name.is_empty() {
        errors.push(FieldError::required(path, "name or generateName is required"));
    } else {
        check::each(rule.problems(name), name, &path, errors);
    }
    namespace(object, scope, errors);
    shared(object, errors);
    finalizers(object, errors);
}

/// Judges the metadata of an update against what the store holds.
///
/// The client may leave out the fields that the server fills in (uid, timestamps).
pub fn validate_metadata_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if json::has(old, "/metadata/deletionTimestamp") {
        no_new_finalizers(new, old, errors);
    }
    let generation = json::int(new, "/metadata/generation");
    if generation > 0 && generation < json::int(old, "/metadata/generation") {
        let path = METADATA.field("generation");
        errors.push(FieldError::invalid(path, generation, "must not be decremented"));
    }
    let empty = Value::Null;
    let (new_meta, old_meta) =
        (new.get("metadata").unwrap_or(&empty), old.get("metadata").unwrap_or(&empty));
    for key in ["name", "namespace"] {
        check::immutable(new_meta, old_meta, key, &METADATA, errors);
    }
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new_meta.get(key).is_some_and(|value| !value.is_null()) {
            check::immutable(new_meta, old_meta, key, &METADATA, errors);
        }
    }
    shared(new, errors);
}

impl NameRule {
    /// The errors of a whole name.
    pub fn problems(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => syntax::subdomain(name),
            Self::Label => syntax::label(name),
            Self::Label1035 => syntax::label_1035(name),
            Self::PathSegment => syntax::path_segment(name),
        }
    }

    /// The errors of the prefix of a name that will be completed.
    fn problems_with_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            Self::PathSegment => syntax::path_segment_prefix(prefix),
            _ => self.problems(&mask_trailing_dash(prefix)),
        }
    }
}

/// A prefix may end with a dash because more follows.
fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked: String = rest.to_owned();
            masked.pop();
            masked + "a"
        }
        _ => prefix.to_owned(),
    }
}

fn namespace(object: &Value, scope: Scope, errors: &mut Vec<FieldError>) {
    let name = json::text(object, "/metadata/namespace");
    let path = METADATA.field("namespace");
    match scope {
        Scope::Namespaced if name.is_empty() => errors.push(FieldError::required(path, "")),
        Scope::Namespaced => check::each(syntax::label(name), name, &path, errors),
        Scope::Cluster if name.is_empty() => {}
        Scope::Cluster => errors.push(FieldError::forbidden(path, "not allowed on this type")),
    }
}

fn shared(object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    check::not_negative(metadata, "generation", &METADATA, errors);
    labels::validate(metadata.get("labels"), &METADATA.field("labels"), errors);
    annotations(metadata.get("annotations"), &METADATA.field("annotations"), errors);
    owners(object, errors);
    managed_fields(object, errors);
}

/// Judges annotations: keys and their total size.
pub(crate) fn annotations(
    annotations: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut size = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        check::each(syntax::qualified_name(&key.to_lowercase()), key, path, errors);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

fn owners(object: &Value, errors: &mut Vec<FieldError>) {
    let list = METADATA.field("ownerReferences");
    let mut controller: Option<String> = None;
    for (index, owner) in json::list(object, "/metadata/ownerReferences").iter().enumerate() {
        let path = list.index(index);
        let version = json::text(owner, "/apiVersion");
        if version.is_empty() {
            errors.push(FieldError::required(path.field("apiVersion"), "must not be empty"));
        } else if version.matches('/').count() > 1 || version.ends_with('/') {
            errors.push(FieldError::invalid(
                path.field("apiVersion"),
                version,
                "must be <group>/<version> or <version>",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if owner.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                // As upstream, which does not say which of them.
                errors.push(FieldError::invalid(list.field(key), "", "must not be empty"));
            }
        }
        let kind = json::text(owner, "/kind");
        if (version, kind) == BANNED_OWNER {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner.clone(), detail));
        }
        if json::flag(owner, "/controller") {
            let name = format!("{kind}/{}", json::text(owner, "/name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => errors.push(FieldError::invalid(
                    list,
                    object.pointer("/metadata/ownerReferences").cloned().unwrap_or_default(),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in \
                         references for {first} and {name}"
                    ),
                )),
            }
        }
    }
}

fn finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let path = METADATA.field("finalizers");
    let finalizers = json::texts(object, "/metadata/finalizers");
    for finalizer in &finalizers {
        check::each(syntax::qualified_name(finalizer), finalizer, &path, errors);
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers, detail));
    }
}

fn no_new_finalizers(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = json::texts(old, "/metadata/finalizers");
    let mut added = json::texts(new, "/metadata/finalizers");
    added.retain(|finalizer| !before.contains(finalizer));
    added.sort_unstable();
    added.dedup();
    if added.is_empty() {
        return;
    }
    let quoted: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        quoted.join(", ")
    );
    errors.push(FieldError::forbidden(METADATA.field("finalizers"), detail));
}

fn managed_fields(object: &Value, errors: &mut Vec<FieldError>) {
    let list = METADATA.field("managedFields");
    for (index, entry) in json::list(object, "/metadata/managedFields").iter().enumerate() {
        let path = list.index(index);
        match json::text(entry, "/operation") {
            "" => errors.push(FieldError::required(path.field("operation"), "must not be empty")),
            _ => check::one_of(entry, "operation", &["Apply", "Update"], &path, errors),
        }
        let kind = json::text(entry, "/fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            let path = path.field("fieldsType");
            errors.push(FieldError::invalid(path, kind, "must be `FieldsV1`"));
        }
        manager(json::text(entry, "/manager"), &path.field("manager"), errors);
        if json::text(entry, "/subresource").len() > 256 {
            errors.push(FieldError::too_long(path.field("subresource"), 256));
        }
    }
}

fn manager(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if name.len() > 128 {
        errors.push(FieldError::too_long(path, 128));
    }
    for (index, char) in name.char_indices().filter(|(_, char)| char.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {index})", u32::from(char));
        errors.push(FieldError::invalid(path, name, detail));
    }
}

#[cfg(test)]
mod tests;
