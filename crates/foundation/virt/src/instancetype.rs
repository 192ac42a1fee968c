//! Sizes and preferences that machines refer to: finding them, applying them, and keeping
//! the version that a machine was started with.
//!
//! A size owns its fields: a template that sets one of them too is in conflict. A preference
//! only fills what is open.

mod infer;
mod preference;
mod revision;
mod size;

use std::fmt;

use serde_json::Value;

use crate::admit::Objects;
use crate::config::ClusterConfig;
use crate::default::{
    DefaultError, default_instance_spec, default_interface, default_volume_disks,
};
use crate::state::text;

pub use infer::{InferError, infer};
pub use revision::{annotate, revision, status_reference, upgraded};
pub(crate) use size::{CpuSpread, TOPOLOGIES, spread};

/// The specifications that a machine refers to, as far as they exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizing {
    pub size: Option<Value>,
    pub preference: Option<Value>,
}

/// A field that both the template and the size set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub field: String,
    /// Said instead of the usual words.
    message: Option<String>,
}

impl Conflict {
    fn new(field: impl Into<String>) -> Self {
        Self { field: field.into(), message: None }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => out.write_str(message),
            None => {
                write!(out, "VM field(s) {} conflicts with selected instance type", self.field)
            }
        }
    }
}

/// A preference that asks for more than there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnmetPreference {
    pub fields: String,
    message: String,
}

/// Why a machine cannot be written out in full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("{}", conflict_text(.0))]
    Conflict(Vec<Conflict>),
    #[error(transparent)]
    Default(#[from] DefaultError),
    #[error("{kind}.instancetype.kubevirt.io {name:?} not found")]
    NotFound { kind: &'static str, name: String },
}

fn conflict_text(conflicts: &[Conflict]) -> String {
    let fields: Vec<&str> = conflicts.iter().map(|conflict| conflict.field.as_str()).collect();
    format!("VM field(s) {} conflicts with selected instance type", fields.join(", "))
}

/// The plural of the kind that a matcher names, and whether it lives in a namespace.
fn plural(field: &str, matcher: &Value) -> Option<(&'static str, bool)> {
    let kind = text(matcher, "/kind").to_ascii_lowercase();
    let kind = kind.strip_suffix('s').unwrap_or(&kind);
    match (field, kind) {
        ("instancetype", "" | "virtualmachineclusterinstancetype") => {
            Some(("virtualmachineclusterinstancetypes", false))
        }
        ("instancetype", "virtualmachineinstancetype") => {
            Some(("virtualmachineinstancetypes", true))
        }
        ("preference", "" | "virtualmachineclusterpreference") => {
            Some(("virtualmachineclusterpreferences", false))
        }
        ("preference", "virtualmachinepreference") => Some(("virtualmachinepreferences", true)),
        _ => None,
    }
}

/// The object that a machine refers to in `spec.instancetype` or `spec.preference`: the
/// version that was kept, or what there is now.
pub fn referenced(
    field: &str,
    vm: &Value,
    namespace: &str,
    objects: &dyn Objects,
) -> Option<Value> {
    let matcher = &vm["spec"][field];
    let name = text(matcher, "/name");
    if name.is_empty() {
        return None;
    }
    let status = &vm["status"][format!("{field}Ref")];
    let kept = match text(matcher, "/revisionName") {
        "" if status["name"] == name => text(status, "/controllerRevisionRef/name"),
        revision => revision,
    };
    if !kept.is_empty()
        && let Some(revision) = objects.get("apps", "controllerrevisions", namespace, kept)
    {
        return Some(revision["data"].clone());
    }
    let (plural, namespaced) = plural(field, matcher)?;
    let namespace = if namespaced { namespace } else { "" };
    objects.get("instancetype.kubevirt.io", plural, namespace, name)
}

impl Sizing {
    /// Finds the objects that a machine refers to. Missing objects are left out, as they may be
    /// created later.
    pub fn find(vm: &Value, namespace: &str, objects: &dyn Objects) -> Self {
        let spec =
            |field| referenced(field, vm, namespace, objects).map(|object| object["spec"].clone());
        Self { size: spec("instancetype"), preference: spec("preference") }
    }

    /// Applies both to a template (`metadata` and `spec`), whose specification is at a
    /// path. With conflicts the template is left half done.
    pub fn apply(&self, at: &str, template: &mut Value) -> Vec<Conflict> {
        if let Some(size) = &self.size {
            if let Some(conflict) = size::check_spread(size, self.preference.as_ref()) {
                return vec![conflict];
            }
            let conflicts = size::apply(at, size, self.preference.as_ref(), template);
            if !conflicts.is_empty() {
                return conflicts;
            }
        }
        if let Some(preference) = &self.preference {
            preference::apply(preference, template);
        }
        Vec::new()
    }

    /// Whether a specification, with the size applied, is enough for the preference.
    pub fn check_requirements(&self, spec: &Value) -> Result<(), UnmetPreference> {
        match &self.preference {
            Some(preference) => size::check_requirements(self.size.as_ref(), preference, spec),
            None => Ok(()),
        }
    }
}

/// Choices about devices that must be made before devices are added by default.
pub fn prefer_devices(sizing: &Sizing, spec: &mut Value) {
    if let Some(preference) = &sizing.preference {
        preference::prefer_automatic(preference, spec);
    }
}

/// A machine written out in full, without references.
pub fn expand(
    vm: &Value,
    namespace: &str,
    objects: &dyn Objects,
    config: &ClusterConfig,
) -> Result<Value, ExpandError> {
    let mut expanded = vm.clone();
    if !vm["spec"]["instancetype"].is_object() && !vm["spec"]["preference"].is_object() {
        return Ok(expanded);
    }
    let sizing = Sizing::find(vm, namespace, objects);
    for (field, found) in [("instancetype", &sizing.size), ("preference", &sizing.preference)] {
        let matcher = &vm["spec"][field];
        if matcher.is_object() && found.is_none() {
            let kind =
                plural(field, matcher).map_or("virtualmachineinstancetypes", |(kind, _)| kind);
            return Err(ExpandError::NotFound { kind, name: text(matcher, "/name").to_owned() });
        }
    }
    let template =
        crate::default::object(crate::default::object(&mut expanded, "spec"), "template");
    let spec = crate::default::object(template, "spec");
    default_volume_disks(spec);
    default_interface(spec, config)?;
    let conflicts = sizing.apply("spec.template.spec", template);
    if !conflicts.is_empty() {
        return Err(ExpandError::Conflict(conflicts));
    }
    default_instance_spec(crate::default::object(template, "spec"), config)?;
    for (part, fields) in
        [("spec", ["instancetype", "preference"]), ("status", ["instancetypeRef", "preferenceRef"])]
    {
        if let Some(part) = expanded.get_mut(part).and_then(Value::as_object_mut) {
            for field in fields {
                part.remove(field);
            }
        }
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests;
