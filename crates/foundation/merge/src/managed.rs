//! Ownership of fields: `metadata.managedFields` kept up to date by every write, and server-side
//! apply, which is decided by it. Works on whole objects.
//!
//! Managers of different API versions are taken to speak of the same shape,
//! which holds as long as no version converts into another.

use std::sync::LazyLock;

use schema::Schema;
use serde_json::{Map, Value};

use crate::set::Set;

mod apply;
mod conflict;
mod entries;
mod last_applied;
mod update;

pub use apply::{ApplyError, apply};
pub use conflict::{Conflict, Conflicts};
pub use entries::{EntryError, validate_managed_fields};
pub use update::track_update;

/// The parameters of a write, beside the objects.
#[derive(Debug, Clone, Copy)]
pub struct MergeRequest<'a> {
    /// The `fieldManager`, or what the user agent says.
    pub manager: &'a str,
    /// `status` and the like; empty for the object itself.
    pub subresource: &'a str,
    /// `apps/v1`, the version in which the request speaks.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The time of the request, `2006-01-02T15:04:05Z`.
    pub now: &'a str,
    pub schema: &'a Schema,
    /// Fields that this endpoint never owns, such as `status` on the object itself.
    pub reset: &'a Set,
    /// The API versions of the kind that still exist; managers of others are forgotten.
    /// Empty if all are known to exist.
    pub versions: &'a [&'a str],
    /// The content of an object of this kind when nothing is set. Built-in kinds have an empty
    /// `spec`, so that its creator owns the fields but not `spec` itself; custom resources have
    /// nothing (`None`).
    pub blank: Option<&'a Value>,
}

impl MergeRequest<'_> {
    fn manager(&self) -> &str {
        if self.manager.is_empty() { "unknown" } else { self.manager }
    }

    /// The time that an entry is given. Upstream rewrites those below `/scale` between two
    /// kinds, and loses it there.
    fn time(&self) -> Option<String> {
        (self.subresource != "scale").then(|| self.now.to_owned())
    }

    fn serves(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.contains(&version)
    }
}

/// Fields that never have an owner.
static NEVER_OWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// The field that holds the managers themselves.
static MANAGED_FIELDS: LazyLock<Set> =
    LazyLock::new(|| Set::of_fields(&[&["metadata", "managedFields"]]));

fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

fn managed_fields(object: &Value) -> Option<&Value> {
    metadata(object).and_then(|metadata| metadata.get("managedFields"))
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// An empty list is written as nothing at all.
fn set_managed_fields(object: &mut Value, entries: Vec<Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), false) = (metadata, entries.is_empty()) {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn has_uid(object: &Value) -> bool {
    let uid = metadata(object).and_then(|metadata| metadata.get("uid"));
    uid.and_then(Value::as_str).is_some_and(|uid| !uid.is_empty())
}

/// Whether two objects are the same but for the times in `managedFields`: a write that
/// changes nothing else is none.
pub fn equal_ignoring_timestamps(left: &Value, right: &Value) -> bool {
    equal_but_managed_fields(left, right)
        && match (managed_fields(left), managed_fields(right)) {
            (Some(Value::Array(left)), Some(Value::Array(right))) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| same_entry(left, right))
            }
            (left, right) => left == right,
        }
}

fn same_entry(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    let timeless =
        |entry: &'_ Map<String, Value>| entry.len() - usize::from(entry.contains_key("time"));
    timeless(left) == timeless(right)
        && left.iter().all(|(name, value)| name == "time" || right.get(name) == Some(value))
}

fn equal_but_managed_fields(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    left.len() == right.len()
        && left.iter().zip(right).all(|((left_name, left), (right_name, right))| {
            let same = match (left_name.as_str(), left, right) {
                ("metadata", Value::Object(left), Value::Object(right)) => {
                    let rest = |(name, _): &(&String, &Value)| *name != "managedFields";
                    left.iter().filter(rest).eq(right.iter().filter(rest))
                }
                _ => left == right,
            };
            left_name == right_name && same
        })
}

#[cfg(test)]
mod tests;
